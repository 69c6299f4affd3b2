# The official PostgreSQL image with outbox in it, preloaded:
#
#   docker build -t postgres-outbox .
#   docker build --build-arg PG_MAJOR=18 --build-arg DEBIAN=trixie -t postgres-outbox:18 .
#
# What the documentation of the official image says holds, but this one never
# runs as root: a volume must belong to the user postgres (999), as those that
# Docker makes do.  compose.yaml has it with a broker.
#
# BASE is another image with Debian's or PGDG's packages of that PostgreSQL, such
# as CloudNativePG's.  The target "extension" is the extension alone, for image
# volumes.  doc/install.md has both.

ARG PG_MAJOR=17
ARG DEBIAN=bookworm
ARG BASE=postgres:${PG_MAJOR}-${DEBIAN}

# ---------------------------------------------------------------------------
FROM ${BASE} AS build
ARG PG_MAJOR

# hadolint ignore=DL3002
USER root

# Without versions: the base image says which release they are of.
# hadolint ignore=DL3008
RUN apt-get update \
	&& apt-get install -y --no-install-recommends \
		gcc \
		libc6-dev \
		librabbitmq-dev \
		libssl-dev \
		make \
		"postgresql-server-dev-${PG_MAJOR}" \
	&& rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY Makefile outbox.control outbox--*.sql ./
COPY inbox/ inbox/
COPY src/ src/
ENV PG_CONFIG=/usr/lib/postgresql/${PG_MAJOR}/bin/pg_config
RUN make with_llvm=no && make with_llvm=no install DESTDIR=/out

# Its files, and the library that a server without it does not have, in the
# layout of CloudNativePG's extension images.
WORKDIR /extension
RUN mkdir lib share system \
	&& cp "/out$("${PG_CONFIG}" --pkglibdir)/outbox.so" lib/ \
	&& cp -r "/out$("${PG_CONFIG}" --sharedir)/extension" share/ \
	&& cp -L /usr/lib/*-linux-gnu/librabbitmq.so.4 system/

# ---------------------------------------------------------------------------
FROM scratch AS extension
COPY --from=build /extension/ /
USER 65532:65532

# ---------------------------------------------------------------------------
FROM ${BASE}
ARG PG_MAJOR

USER root

# ca-certificates: to know the broker of an amqps:// URI by.  initdb makes the
# postgresql.conf of a new cluster of the sample; a setting on the server's
# command line, or ALTER SYSTEM, overrides what is there.
# hadolint ignore=DL3008
RUN apt-get update \
	&& apt-get install -y --no-install-recommends ca-certificates librabbitmq4 \
	&& rm -rf /var/lib/apt/lists/* \
	&& echo "shared_preload_libraries = 'outbox'" \
		>>"/usr/share/postgresql/${PG_MAJOR}/postgresql.conf.sample"

COPY --from=build /out/ /

USER postgres
