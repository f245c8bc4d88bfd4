# kvell on a CPU. The default model is fetched into the volume at the first start, or mounted there.
#
#   docker build -t kvell .
#   docker run --rm -p 8000:8000 -v kvell-models:/models kvell
#
# TORCH_INDEX_URL is where torch comes from; PyTorch's own CPU index spares the image the CUDA libraries.

ARG BASE_IMAGE=python:3.12-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
# For the native kernels; without a compiler torch would serve, at a fraction of the speed.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY constraints.txt ./
RUN python3 -m venv /opt/kvell \
    && /opt/kvell/bin/pip install -q -c constraints.txt torch ${TORCH_INDEX_URL:+--extra-index-url ${TORCH_INDEX_URL}}
COPY pyproject.toml setup.py README.md ./
COPY cache cache
COPY model model
COPY server server
RUN /opt/kvell/bin/pip install -q -c constraints.txt . \
    && find /opt/kvell -name __pycache__ -prune -exec rm -rf {} + \
    && rm -rf /opt/kvell/lib/python3*/site-packages/torch/include /opt/kvell/lib/python3*/site-packages/torch/test

FROM ${BASE_IMAGE}
# 65532 owns the volume, so that a fresh named volume is writable for the user that the server runs as.
RUN groupadd --gid 65532 kvell && useradd --uid 65532 --gid kvell --no-create-home --home-dir /models kvell \
    && mkdir -p /models && chown kvell:kvell /models
COPY --from=build /opt/kvell /opt/kvell
ENV PATH=/opt/kvell/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    KVELL_HOST=0.0.0.0 \
    KVELL_PORT=8000 \
    KVELL_CACHE_DIR=/models \
    HF_HOME=/models/huggingface
USER 65532:65532
WORKDIR /models
VOLUME /models
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"KVELL_PORT\"]}/ready', timeout=4)"]
# The exec form makes kvell process 1, so SIGTERM reaches it and the running streams finish before it leaves.
ENTRYPOINT ["kvell"]
CMD ["serve"]
