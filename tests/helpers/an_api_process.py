"""An API process reduced to its service, for tests that kill it: prints its engine's pid and then does nothing.

python an_api_process.py MODEL_DIR [HOLD]      with HOLD also something to compute that takes for ever
"""

import asyncio
import sys

from model.sampling_params import SamplingParams
from server.config import EngineConfig, ServerConfig
from server.engine.request import Request
from server.engine.service import EngineService
from server.metrics import Metrics


async def main() -> None:
    engine = EngineConfig(model_path=sys.argv[1], kv_cache_bytes=2**26, threads=1)
    service = EngineService(ServerConfig(model="tiny", engine=engine), metrics=Metrics())
    await service.start()
    if sys.argv[2] == "busy":
        submission = service.submit([Request("long", (1, 2, 3), 5000, SamplingParams(temperature=0.0))])
        while not (events := await submission.batch())[0].tokens:
            assert events[0].finish is None, events
    print(service.engine_pid, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
