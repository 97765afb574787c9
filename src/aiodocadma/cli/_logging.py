"""``--sdk-log-level``: DOCA's own log on stderr."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

from aiodocadma import _sdk_log

__all__ = ["shown_sdk_log"]


@contextlib.contextmanager
def shown_sdk_log(level: int | None) -> Iterator[None]:
    """
    Show the log while a command runs, if it is asked for by the option or the environment.

    Args:
        level: Of the option; None if it was not given.

    Yields:
        Nothing.

    Source: aiodocadma.
    """
    before = _sdk_log.chosen_level()
    if level is not None:
        _sdk_log.set_sdk_log_level(level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger, old_level, old_propagate = _sdk_log.logger, _sdk_log.logger.level, _sdk_log.logger.propagate
    logger.addHandler(handler)
    logger.setLevel(1)
    logger.propagate = False
    try:
        yield
    finally:
        _sdk_log.read_all()
        logger.removeHandler(handler)
        logger.setLevel(old_level)
        logger.propagate = old_propagate
        _sdk_log.set_sdk_log_level(before)
