"""Streams whose reader may have gone, as `head` does after ten lines."""

from typing import IO, Any


class Unread(BrokenPipeError):
    """Whoever read our output has gone."""


class Watched:
    """A stream that hands to `_gone` what goes wrong when it is written to."""

    def __init__(self, stream: IO[str]):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._gone(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._gone(error)

    def _gone(self, error: OSError) -> None:
        """Ends the work, in a way that tells it from a pipe that broke elsewhere."""
        if isinstance(error, BrokenPipeError):
            raise Unread(*error.args) from None
        raise error
