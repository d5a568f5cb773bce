#!/usr/bin/env node
// Starts the program that the package of this platform carries, with the same streams, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");

const name = `llm-do-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/llm-do`);
} catch {
  console.error(`error: the package ${name} is not there\nhint: install it beside llm-do; optional dependencies must not be left out`);
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends its signals to both of us, and the program decides what comes of them; others send them to us alone.
for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`error: ${program} cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
