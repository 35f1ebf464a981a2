# The manager's image: `make image`, or `docker buildx build --platform linux/amd64,linux/arm64 .`
# No step depends on the architecture. BASE is any image with Python 3.11 or newer as `python3`;
# pin it by digest for builds that can be repeated.
ARG BASE=python:3.13-slim

FROM ${BASE} AS builder
WORKDIR /source
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir hatchling cyclonedx-bom
# The virtual environment is made where it will run, since its scripts hold their path.
RUN python3 -m venv --without-pip /opt/proreus
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
# EXTRAS are those of pyproject.toml, with commas between them: by default those of every cloud.
ARG EXTRAS=aws,gce,local,mesos,openstack,speed
# PLUGINS are more packages, such as a cloud provider's.
ARG PLUGINS=""
RUN /opt/build/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /wheels . \
    && /opt/build/bin/pip --python /opt/proreus install --no-cache-dir --compile -c constraints.txt \
        "$(echo /wheels/*.whl)${EXTRAS:+[${EXTRAS}]}" ${PLUGINS}
# The bill of materials, in CycloneDX, of exactly what is installed.
RUN /opt/build/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
        --pyproject pyproject.toml --output-file /opt/proreus/sbom.cdx.json /opt/proreus

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.title="Proreus" \
      org.opencontainers.image.description="The Kubernetes cloud-controller-manager in Python" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# PACKAGES are of the base image's Debian: these are what the provider local needs.
ARG PACKAGES="iproute2 keepalived netbase nftables"
RUN test -z "${PACKAGES}" || { apt-get update \
    && apt-get install --yes --no-install-recommends ${PACKAGES} \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*; }
# Where the official managers' images have their programs, and so their manifests look for them.
RUN mkdir -p /usr/local/bin \
    && for name in \
        /bin/aws-cloud-controller-manager \
        /bin/openstack-cloud-controller-manager \
        /bin/vsphere-cloud-controller-manager \
        /cloud-controller-manager \
        /usr/local/bin/cloud-controller-manager; \
    do ln -s /opt/proreus/bin/cloud-controller-manager "$name"; done
COPY --from=builder /opt/proreus /opt/proreus
# The bytecode is in the image: nothing is written to the root file system.
ENV PATH=/opt/proreus/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 10258
ENTRYPOINT ["cloud-controller-manager"]
