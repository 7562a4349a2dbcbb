# A server of packed models: docker build -t bibert . && docker run --rm -p 8080:8080 bibert
# The steps of the build are in container/build.sh, which the tests run too.
FROM python:3.12-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml constraints.txt CMakeLists.txt README.md LICENSE ./
COPY container/build.sh container/build.sh
COPY native native
COPY src src
RUN sh container/build.sh /opt/bibert

FROM python:3.12-slim-bookworm
RUN useradd --system --no-create-home --uid 10001 bibert
COPY --from=build /opt/bibert /opt/bibert
# Inside a container only 0.0.0.0 can be reached; publish the port where you want it, and set BIBERT_API_KEY.
ENV PATH=/opt/bibert/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    BIBERT_HOST=0.0.0.0 \
    BIBERT_PORT=8080
WORKDIR /models
USER 10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['BIBERT_PORT'] + '/health', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["bibert", "serve"]
