# syntax=docker/dockerfile:1
# Two stages: what builds does not ship. To pin the base to the byte, give its digest:
# --build-arg BASE=python:3.13-slim-bookworm@sha256:…
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
WORKDIR /src
# the tools that build the package stay in an environment of their own
COPY requirements-e2e.lock requirements-build.lock ./
RUN python3 -m venv /build \
    && /build/bin/python -m pip install --require-hashes --only-binary :all: -r requirements-build.lock \
    && python3 -m venv /opt/agentpod-bot \
    && /opt/agentpod-bot/bin/python -m pip install --require-hashes --only-binary :all: -r requirements-e2e.lock
COPY pyproject.toml README.md ./
COPY agentpod_bot agentpod_bot
RUN /build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/agentpod-bot/bin/python -m pip install --no-deps --no-index /wheels/*.whl \
    && /opt/agentpod-bot/bin/python -m pip uninstall --yes pip

FROM ${BASE}
LABEL org.opencontainers.image.title="agentpod-bot" \
      org.opencontainers.image.description="Asks a person in a Matrix room before an AI agent acts" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/agentpod-bot /opt/agentpod-bot
# numeric, so that an orchestrator can see that it is not root; 0700, as the store holds raw commands
RUN mkdir -m 0700 /data && chown 10001:10001 /data
# the store stands on /data whatever the configuration file says; anything else is the file's
ENV PATH=/opt/agentpod-bot/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    AGENTPOD_BOT_CONFIG=/config/config.yaml \
    AGENTPOD_BOT_STORE__PATH=/data/agentpod.db
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8470
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["agentpod-bot", "healthcheck"]
ENTRYPOINT ["agentpod-bot"]
CMD ["run", "--config", "/config/config.yaml"]
