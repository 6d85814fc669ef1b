"""The evaluator process: forked, limited, and answering over a pipe; its death is an error like others."""

from __future__ import annotations

import marshal
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from mxt.errors import LoadError, MxtError, UsageError
from mxt.loading.workspace import Workspace

MEMORY = 512 << 20  # bytes that an evaluation may take
GRACE = 1.5  # seconds for the evaluator to notice its deadline itself, which then knows the line
_LENGTH = struct.Struct("<Q")


class Server:
    """One evaluator process, started at the first request and again after it died.

    Fork before threads: request() must first be called while this process has no others, and from
    a thread that lives on, because the evaluator dies with it.
    """

    def __init__(
        self,
        workspace: Workspace,
        rules: Iterable[str],
        timeout: float,
        config: Callable[[str, str, str, str], tuple[str, dict[str, Any]]],
        tell: Callable[[str], None],
    ) -> None:
        """config: answers config() calls, in this process. tell: shows what print() prints."""
        self.workspace = workspace
        self.rules = list(rules)
        self.timeout = timeout
        self.config = config
        self.tell = tell
        self.pid = 0
        self.send_fd = self.receive_fd = self.errors_fd = -1

    def package(self, name: str) -> tuple[Any, ...]:
        """Evaluator.package(name), in the child; raises LoadError, also when the child dies of it."""
        if not self.pid:
            self._start()
        file = ""
        deadline = time.monotonic() + self.timeout + GRACE
        try:
            _send(self.send_fd, ("package", name))
            while True:
                kind, *rest = self._receive(deadline)
                if kind == "done":
                    return rest[0]  # type: ignore[no-any-return]
                if kind == "file":
                    file = rest[0]
                elif kind == "print":
                    self.tell(rest[0])
                elif kind == "config":
                    started = time.monotonic()
                    self._answer_config(rest)
                    deadline += time.monotonic() - started
                elif kind == "error":
                    message, where, hint, excerpt = rest
                    raise LoadError(message, where=where, hint=hint, excerpt=excerpt)
                elif kind == "usage":
                    message, where, hint, excerpt = rest
                    raise UsageError(message, where=where, hint=hint, excerpt=excerpt)
        except TimeoutError:
            self.close()
            raise LoadError(
                f"evaluation takes longer than {self.timeout:g} s",
                where=file,
                hint="one of its values is too large; else raise MXT_LOAD_TIMEOUT (seconds)",
            ) from None
        except (EOFError, BrokenPipeError):
            raise self._post_mortem(file) from None
        except BaseException as problem:
            if not isinstance(problem, MxtError):
                self.close()  # Ctrl-C in the middle: an answer may still be on the way
            raise

    def close(self) -> None:
        """End the process; the next request starts a new one."""
        if self.pid:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._reap()

    def _reap(self) -> int:
        try:
            _, status = os.waitpid(self.pid, 0)
        except ChildProcessError:
            status = 0
        for fd in (self.send_fd, self.receive_fd, self.errors_fd):
            os.close(fd)
        self.pid = 0
        return status

    def _answer_config(self, request: list[Any]) -> None:
        answer: tuple[Any, ...]
        try:
            answer = ("ok", *self.config(*request))
        except MxtError as problem:
            kind = "usage" if isinstance(problem, UsageError) else "error"
            answer = (kind, problem.message, problem.where, problem.hint, problem.excerpt)
        _send(self.send_fd, answer)

    def _receive(self, deadline: float) -> Any:
        head = self._read(_LENGTH.size, deadline)
        body = self._read(_LENGTH.unpack(head)[0], deadline)
        return marshal.loads(body)  # noqa: S302 - written by our own child

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        poll = select.poll()
        poll.register(self.receive_fd, select.POLLIN)
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise TimeoutError
            piece = os.read(self.receive_fd, min(size - len(data), 1 << 20))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def _post_mortem(self, file: str) -> LoadError:
        """What the child died of, from its status and its last words."""
        last = os.pread(self.errors_fd, 65536, 0).decode("utf-8", "replace")
        status = self._reap()
        if "memory allocation of" in last or "out of memory" in last or "MemoryError" in last:
            return LoadError(
                f"evaluation needs more than {MEMORY >> 20} MiB of memory",
                where=file,
                hint="a value grows too large; keep data in files and name them",
            )
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return LoadError(
                "the evaluator was killed from outside", where=file, hint="short of memory? try again"
            )
        if os.WIFSIGNALED(status):
            try:
                base = self.workspace.root
                if file.startswith("@mxt//"):
                    from mxt.loading.rule_modules import BUILTIN_RULES

                    base = BUILTIN_RULES.parent
                source = (base / file.removeprefix("@mxt//")).read_text("utf-8", "replace")
            except OSError:
                source = ""
            where, excerpt = _deepest(source, file)
            return LoadError(
                "a literal, expression or value is nested too deeply",
                where=where,
                excerpt=excerpt,
                hint="flatten it, or keep data in files and name them",
            )
        words = last.strip().splitlines()
        return LoadError(
            f"the evaluator ended unexpectedly: {words[-1] if words else f'status {status}'}", where=file
        )

    def _start(self) -> None:
        request_in, self.send_fd = os.pipe()
        self.receive_fd, answer_out = os.pipe()
        self.errors_fd = os.memfd_create("mxt-evaluator")
        parent = os.getpid()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as problem:
            for fd in (request_in, self.send_fd, self.receive_fd, answer_out, self.errors_fd):
                os.close(fd)
            raise LoadError(f"cannot start the evaluator: {problem.strerror}") from None
        if pid == 0:
            try:
                self._child(request_in, answer_out, parent)
            finally:
                os._exit(70)
        self.pid = pid
        os.close(request_in)
        os.close(answer_out)

    def _child(self, request_in: int, answer_out: int, parent: int) -> NoReturn:
        _settle(request_in, answer_out, self.errors_fd, parent)
        request_in, answer_out = 3, 4

        def ask_config(package: str, path: str, schema: str, overrides: str) -> tuple[str, dict[str, Any]]:
            _send(answer_out, ("config", package, path, schema, overrides))
            kind, *rest = _take(request_in)
            if kind == "ok":
                return rest[0], rest[1]
            message, where, hint, excerpt = rest
            error: type[MxtError] = UsageError if kind == "usage" else LoadError
            raise error(message, where=where, hint=hint, excerpt=excerpt)

        from mxt.loading.starlark_eval import Evaluator

        evaluator = Evaluator(
            self.workspace,
            self.rules,
            self.timeout,
            ask_config,
            lambda kind, text: _send(answer_out, (kind, text)),
        )
        while True:
            try:
                _, name = _take(request_in)
            except EOFError:
                os._exit(0)
            try:
                answer: tuple[Any, ...] = ("done", evaluator.package(name))
            except MxtError as problem:
                kind = "usage" if isinstance(evaluator.pending, UsageError) else "error"
                answer = (kind, problem.message, problem.where, problem.hint, problem.excerpt)
            except BaseException as problem:  # noqa: BLE001 - a panic in Rust: trust this process no more
                os.write(2, f"\n{type(problem).__name__}: {problem}\n".encode("utf-8", "replace"))
                os._exit(71)
            _send(answer_out, answer)


def _deepest(source: str, file: str) -> tuple[str, str]:
    """Where and excerpt for a file whose evaluation overflowed the stack: its deepest brackets, or
    the line that is too long to have been written by hand."""
    from mxt.loading.excerpt import excerpt
    from mxt.loading.nesting import nesting

    found = nesting(source)
    line, column = found.line, found.column
    if found.depth < 200:
        lines = source.split("\n")
        line, column = max(range(1, len(lines) + 1), key=lambda n: len(lines[n - 1])), 1
        if len(lines[line - 1]) < 4000:
            return file, ""
    return f"{file}:{line}:{column}", excerpt(source, line, column)


def _settle(request_in: int, answer_out: int, errors: int, parent: int) -> None:
    """Make this process what an evaluator should be: small, quiet, and gone when its parent is."""
    import ctypes
    import fcntl
    import gc
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)
    # an inherited descriptor would keep somebody's flock alive: 0, 1, 2, the two pipes, no more
    null = os.open(os.devnull, os.O_RDWR)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (null, errors, errors, request_in, answer_out)]
    for target, fd in enumerate(high):
        os.dup2(fd, target)
    os.closerange(5, 1 << 20)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, used + MEMORY)
    _limit(resource.RLIMIT_STACK, 8 << 20)  # without one, too deep nesting would eat all memory first
    os.environ["RUST_BACKTRACE"] = "0"  # resolving one costs seconds, and nobody reads it
    gc.disable()
    gc.freeze()


def _limit(what: int, soft: int) -> None:
    import resource

    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _send(fd: int, message: tuple[Any, ...]) -> None:
    body = marshal.dumps(message)
    data = memoryview(_LENGTH.pack(len(body)) + body)
    while data:
        data = data[os.write(fd, data) :]


def _take(fd: int) -> Any:
    body = _exactly(fd, _LENGTH.unpack(_exactly(fd, _LENGTH.size))[0])
    return marshal.loads(body)  # noqa: S302 - written by our own parent


def _exactly(fd: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.read(fd, min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
