# The image that `wharf install` runs. Build it with `make image`; it needs no network but for Python packages, whose versions
# and hashes requirements.lock fixes.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /opt/wharfinger \
 && /opt/wharfinger/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY src src
RUN /opt/wharfinger/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps .

FROM python:3.13-slim
COPY --from=build /opt/wharfinger /opt/wharfinger
ENV PATH=/opt/wharfinger/bin:$PATH PYTHONUNBUFFERED=1
# Nothing is written but to /tmp; the file system may be read-only.
USER 65532:65532
ENTRYPOINT ["wharf"]
