"""Where log lines go and what they look like; only the command line configures logging."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["plain", "json"]

_NOISY = ("grpc", "grpc._cython", "aiohttp.access", "asyncio", "matplotlib")


class PlainFormatter(logging.Formatter):
    """`12:34:56 WARNING heartbeat: text`, with the level only where it is not INFO."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, followed by the traceback if the record has one."""
        level = "" if record.levelno == logging.INFO else f"{record.levelname} "
        room = record.name.removeprefix("neuroswarm.").partition(".")[0]
        record.message = record.getMessage().replace("\n", "\\n")  # peers cannot forge lines
        line = f"{self.formatTime(record, '%H:%M:%S')} {level}{room}: {record.message}"
        return "\n".join([line, *self._trace(record)])

    def _trace(self, record: logging.LogRecord) -> list[str]:
        return [self.formatException(record.exc_info)] if record.exc_info else []


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts (UTC), level, logger, event, and the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON, never with a line break in it."""
        fields = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure_logging(level: LogLevel, log_format: LogFormat) -> None:
    """Send everything from `level` on to standard error; libraries only from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
