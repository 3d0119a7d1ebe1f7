"""Processes that write event files, to be killed: one process loads the modules, and forks a writer for each line it is given.

    python files_writers.py URL THREADS      stdin: a line for each writer, its name; stdout: one line each of

    began PID | acked BODY | ended PID

A writer appends `NAME-THREAD-COUNT` from each of its threads for as long as it lives, and says so once each is acked.
"""

from __future__ import annotations

import os
import sys
import threading

from rangelog_files.event_store import open_files


def _say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # whole: shorter than what a pipe takes at once


def _write(url: str, name: str, threads: int) -> None:
    def append(number: int) -> None:
        count = 0
        while True:
            body = f"{name}-{number}-{count}"
            writer.append(body.encode())
            _say("acked", body)
            count += 1

    with open_files(url) as store, store.threaded_writer("file.0") as writer:
        _say("began", os.getpid())
        running = [threading.Thread(target=append, args=(number,), daemon=True) for number in range(threads)]
        for each in running:
            each.start()
        for each in running:
            each.join()


def main() -> None:
    """Run the command line."""
    url, threads = sys.argv[1], int(sys.argv[2])
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                _write(url, line.strip(), threads)
            finally:
                os._exit(1)
        os.waitpid(pid, 0)
        _say("ended", pid)


if __name__ == "__main__":
    main()
