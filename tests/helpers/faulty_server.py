"""`kvell` with `faulty_engine` for an engine, no pause before an engine is started again, and much patience."""

import functools
import sys
from pathlib import Path

import server.app
import server.engine.service
from server.cli import main
from server.engine.service import EngineService
from tests.helpers.faults import jump_the_clock

ENGINE = [sys.executable, "-P", str(Path(__file__).with_name("faulty_engine.py"))]

if __name__ == "__main__":
    jump_the_clock()
    server.app.EngineService = functools.partial(EngineService, command=ENGINE)
    server.engine.service.backoff_s = lambda failures: 0.0
    server.engine.service.START_PATIENCE = 40
    main()
