/* Before `main`, Rust's library opens /dev/null for each standard stream that is closed, so that no file which is opened later gets
   its number. What is written to it is then lost without a word. A closed stdout is opened here, before that, for reading alone:
   its number is taken all the same, and writing fails as it would have. Linked as an object of its own; nothing calls it. */

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void keep_stdout_closed(void) {
    if (fcntl(STDOUT_FILENO, F_GETFD) != -1 || errno != EBADF) return;
    int opened = open("/dev/null", O_RDONLY);
    if (opened == -1 || opened == STDOUT_FILENO) return;
    /* A lower number was free, too: stdin is closed, and stays so for Rust to see. */
    dup2(opened, STDOUT_FILENO);
    close(opened);
}
