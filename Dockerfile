# The mock server, and nothing that only its clients need.
#   docker build -t replayrig .
#   docker run --rm -p 8000:8000 -e MOCKSERVER_TIME_SCALE=10 replayrig
# Every setting has an environment variable: MOCKSERVER_PROFILE, MOCKSERVER_MAX_NUM_SEQS, ...

FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/replayrig
COPY pyproject.toml README.md LICENSE ./
# The distribution is one, so its four packages come along (they are small); the libraries that only the load
# generator and the reports use do not. pyproject.toml stays the one place that names versions.
RUN python -c "import tomllib; \
    names = tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']; \
    clients = ('numpy', 'openai', 'plotly'); \
    print('\n'.join(name for name in names if not name.startswith(clients)))" > requirements.txt \
 && /opt/replayrig/bin/pip install --no-cache-dir -r requirements.txt
COPY mockserver mockserver
COPY loadgen loadgen
COPY traces traces
COPY reports reports
RUN /opt/replayrig/bin/pip install --no-cache-dir --no-deps . \
 && /opt/replayrig/bin/pip uninstall --yes --quiet pip

FROM python:3.12-slim
RUN useradd --system --uid 10001 --no-create-home replayrig
COPY --from=build /opt/replayrig /opt/replayrig
# The server starts without what was left out, or the build fails here.
RUN /opt/replayrig/bin/mockserver --help > /dev/null && /opt/replayrig/bin/mockserver profiles > /dev/null
ENV PATH=/opt/replayrig/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MOCKSERVER_HOST=0.0.0.0 \
    MOCKSERVER_PORT=8000
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s CMD \
    ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"MOCKSERVER_PORT\"]}/health', timeout=2)"]
ENTRYPOINT ["mockserver"]
