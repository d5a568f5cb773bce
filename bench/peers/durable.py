"""`durable.py JOURNAL COPY`: writes the lines of a journal once more and waits for the disk wherever the journal had to.
What that takes is what no journal can be without; the start of this program is not in it."""

import os
import sys
import time

#: The end of a step, which is on disk before the run goes on.
ENDS = tuple(f'"kind":"{kind}","state":"done"'.encode() for kind in ("model", "tool", "call"))


def main():
    with open(sys.argv[1], "rb") as journal:
        lines = journal.readlines()
    copy = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    started, worked, syncs = time.perf_counter(), time.process_time(), 0
    for line in lines:
        os.write(copy, line)
        if any(end in line for end in ENDS):
            os.fdatasync(copy)
            syncs += 1
    took, worked = time.perf_counter() - started, time.process_time() - worked
    print("wall_us", int(took * 1e6))
    print("cpu_us", int(worked * 1e6))
    print("syncs", syncs)


main()
