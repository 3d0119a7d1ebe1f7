# One image for all processes, and pdctl: docker build -t rangelog .
# Dependencies are those of requirements.lock, by their hashes. The last stage has no tool that builds anything.
FROM python:3.11.13-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml requirements.lock ./
COPY tools/image_requirements.py tools/
RUN python tools/image_requirements.py > image.lock && python tools/image_requirements.py --build > build.lock
RUN python -m venv /opt/rangelog && /opt/rangelog/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r image.lock
RUN python -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r build.lock
COPY README.md LICENSE hatch_build.py ./
COPY proto proto/
COPY core core/
COPY server_common server_common/
COPY tier tier/
COPY files files/
COPY client client/
COPY jobs jobs/
COPY broker broker/
COPY pd pd/
COPY range_server range_server/
COPY ctl ctl/
COPY page page/
COPY cli cli/
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --disable-pip-version-check --wheel-dir dist .
RUN /opt/rangelog/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-index --find-links dist rangelog

FROM python:3.11.13-slim-bookworm
RUN groupadd --gid 10001 rangelog && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin rangelog \
 && install --directory --owner rangelog --group rangelog --mode 0750 /var/lib/rangelog
COPY --from=build /opt/rangelog /opt/rangelog
ENV PATH=/opt/rangelog/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/rangelog
VOLUME /var/lib/rangelog
STOPSIGNAL SIGTERM
# Needs metrics_listen at 127.0.0.1:9180 or 0.0.0.0:9180. Kubernetes does not look at it: the chart has probes.
HEALTHCHECK --interval=20s --timeout=10s --start-period=60s --retries=3 CMD ["rangelog", "healthcheck", "live"]
ENTRYPOINT ["rangelog"]
CMD ["--help"]
