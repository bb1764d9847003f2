# The image that `wharf install` runs, for machines with Docker or Podman: the same files that `make image` packs without
# them. Versions and hashes of Python packages are those of requirements.lock.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY scripts scripts
COPY web web
COPY src src
RUN python scripts/web.py --required && python -m scripts.image --root /image

FROM scratch
COPY --from=build /image /
ARG REVISION=""
LABEL org.opencontainers.image.title="wharfinger" \
      org.opencontainers.image.description="A scheduling control plane for Kubernetes" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision=$REVISION
ENV PATH=/usr/local/bin:/usr/bin LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
# Nothing is written but to /tmp; the file system may be read-only.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/usr/local/bin/wharf"]
