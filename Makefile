# outbox: PostgreSQL extension, built with PGXS
#
# make, make install, make installcheck   as with any extension (PG_CONFIG=...)
# make quickstart                         on this machine's own servers, to the first message; as root
# make demo [KEEP=1]                      first five minutes, on private servers
# make demo INSTALLED=1                   the same with the outbox that is installed
# make test                               everything that CI runs
# make full-runs [RUN="sim faults"]       what a release needs and has no valid result yet; doc/dev/full-runs.md
# make test-matrix [SUITE=trixie] [QUICK=1]  the same on other releases of Debian; as root
# make test-faults                        the fault suite in full, and its results
# make test-soak [SECONDS=3600]           reconnects for so long, nothing may leak
# make test-pg-upgrade                    pg_upgrade 15 to 17, 17 to 18, and --link; as root
# make test-ddl [SECONDS=3600]            random DDL on the tables beside enqueue
# make test-content [SECONDS=600]         random messages of any content, in six databases
# make test-trade                         with pgbouncer, Patroni and pgBackRest
# make test-monitoring                    Prometheus, both exporters, the alerts
# make test-clients [TESTS=bindings]      drivers and other programs, from their registries
# make test-night                         a bad night, staged, and its timeline
# make states-doc                         doc/dev/states.md: states of a bad night, each named and its command pasted
# make test-valgrind [TESTS=ddl_additions] servers under valgrind
# make test-sanitize [FLAVOUR=asan|valgrind|discard] [TESTS=...]  the suites on servers built for that
# make check-static                       cppcheck and scan-build
# make fuzz [SECONDS=60] [TARGET="uri encode"]  parsers and encoders, each for so long
# make test-alloc [SECONDS=60]            the link, with allocations that fail
# make test-broker-fuzz [SECONDS=600]     the link, with a broker that says anything
# make bench [SCENARIO="3 5"] [DOC=1]     the benchmark, under 80 minutes; test/bench/README.md
# make bench SCENARIO=16 FACTOR=0.1 KEEP=DIR   one scenario's size, and where its tables stay
# make bench-quick, make bench-soak MINUTES=30
# make bench-guard [BASE=commit] [NEW=commit]  is NEW, or the work tree, slower than BASE?  Under 5 minutes
# make inbox                              inbox/outbox_inbox.sql, of the extension's script
# make dist                               the last commit as PGXN takes it, with outbox_inbox.sql
# make test-dist [SUITE=bookworm]         that archive built, installed and tested on a bare Debian, without git
# make deb                                Debian packages of the last commit
# make rpm                                an RPM of the last commit
# make test-packages [SUITE="trixie"]     the Debian packages in Debian's releases, and used
# make test-images [SUITE=bookworm]       the Dockerfile, built and run without Docker
# make test-sim [FULL=1] [SEED=n] [SECONDS=n]  the simulator, with other histories each time
# make test-without [PART=capture]       the tests that remain without a part that can be left out
# make check-unit check-sim check-regress check-isolation check-worker check-tap [TESTS="name ..."]
#
# demo and test install the packages that they need (.ci/setup) and use neither
# the machine's own servers nor its system directories; see test/README.md.

SRC = src
include $(SRC)/folders.mk

MODULE_big = outbox
EXTENSION = outbox inbox/outbox_inbox
OBJS = $(SRC_FILES:.c=.o)
DATA = $(wildcard outbox--*.sql inbox/outbox_inbox--*.sql)
DOCS =
# An image of the server has no servers to set up, and is built without it.
SCRIPTS := $(wildcard examples/quickstart/outbox-quickstart)

# The version has one home, outbox.control.
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" outbox.control)

# The installation script is its parts in the order of src/sql/parts, with the columns of
# a message as src/message/columns.def has them.  It is in the repository, too: PGXS installs it, and a reader finds it where he looks.
SQL_SCRIPT = outbox--$(EXTVERSION).sql
SQL_PARTS := $(shell sed 's|^\([a-z]*\) .*|$(SRC)/sql/\1.sql|; /^\#/d' $(SRC)/sql/parts)

PG_CPPFLAGS = -DOUTBOX_VERSION='"$(EXTVERSION)"'
SHLIB_LINK = -lrabbitmq -lssl -lcrypto

# Beyond the server's own set of warnings.  Left out of -Wextra is what its
# idioms run into: callbacks ignore arguments, PG_TRY looks like a clobber.
# WERROR=1 is for our own builds; a user's compiler may know more warnings.
WARNINGS = -Wextra -Wshadow -Wstrict-prototypes -Wold-style-definition \
	-Wno-unused-parameter -Wno-missing-field-initializers \
	-Wno-sign-compare -Wno-clobbered
WERROR =
PG_CFLAGS = $(WARNINGS) $(if $(WERROR),-Werror)

# pg_regress: one topic a file.  install comes first because it creates the
# extension that the others use, uninstall last because it drops it.
SQL_TOPICS = $(sort $(patsubst sql/%.sql,%,$(wildcard sql/*.sql)))
REGRESS = $(filter install,$(SQL_TOPICS)) \
	$(filter-out install uninstall,$(SQL_TOPICS)) \
	$(filter uninstall,$(SQL_TOPICS))
ISOLATION = install $(filter-out install,$(sort $(patsubst test/isolation/specs/%.spec,%,$(wildcard test/isolation/specs/*.spec))))
# On a server of any encoding, as the C locale of a bare machine gives it.
REGRESS_OPTS = --encoding=UTF8 --no-locale
ISOLATION_OPTS = --inputdir=test/isolation --encoding=UTF8 --no-locale

# Those that run the relay's statements through a test module: make test only.
WORKER_TESTS = test/modules/outbox_test
REGRESS_WORKER = setup $(filter-out setup,$(sort $(patsubst $(WORKER_TESTS)/sql/%.sql,%,$(wildcard $(WORKER_TESTS)/sql/*.sql))))
ISOLATION_WORKER = $(sort $(patsubst $(WORKER_TESTS)/specs/%.spec,%,$(wildcard $(WORKER_TESTS)/specs/*.spec)))

TOOLS = consume raw tcp-proxy lossy-link silent-resolver.so
TOOLS_BIN = tmp_check/bin

EXTRA_CLEAN = tmp_check results output_iso tmp_check_iso regression.diffs \
	regression.out outbox-*.zip inbox/outbox_inbox.sql

# Without PostgreSQL's development files the Makefile must still be readable,
# since it is `make test` and `make demo` that install them.
PG_CONFIG ?= pg_config
PGXS := $(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null))

.DEFAULT_GOAL = all

ifneq ($(PGXS),)
include $(PGXS)

# PostgreSQL's headers are not ours to warn about.
override CPPFLAGS := $(patsubst -I/%,-isystem /%,$(CPPFLAGS))

# Each folder has an include path of its own.
define folder_flags
$(patsubst %.c,%.o,$(wildcard src/$(1)/*.c)) $(patsubst %.c,%.bc,$(wildcard src/$(1)/*.c)): override CPPFLAGS += $(call src_includes,$(1))
endef
$(foreach f,$(SRC_FOLDERS),$(eval $(call folder_flags,$(f))))
src/outbox.o src/outbox.bc: override CPPFLAGS += $(call src_includes,outbox)

# Debian's server is built without dependency tracking, so say it here: any
# header may be included anywhere, and the version is in the control file.
$(OBJS): $(SRC_HEADERS) outbox.control Makefile
# PGXS looks for a script where it comes from.
uninstall: uninstall-scripts
.PHONY: uninstall-scripts
uninstall-scripts:
	rm -f $(addprefix '$(DESTDIR)$(bindir)'/, $(notdir $(SCRIPTS)))
else
all install uninstall installcheck:
	@echo 'no PostgreSQL server development files: "$(PG_CONFIG) --pgxs" names no file.' >&2
	@echo 'Install them (Debian: postgresql-server-dev-NN), set PG_CONFIG, or run .ci/setup.' >&2
	@exit 1

clean distclean:
	rm -rf $(MODULE_big).so $(OBJS) $(OBJS:.o=.bc) $(EXTRA_CLEAN)
endif

# Written only when it differs, so that a checkout stays as it is.
COLUMNS = $(SRC)/message/columns.def
$(SQL_SCRIPT): $(SQL_PARTS) $(SRC)/sql/parts $(SRC)/sql/script.awk $(COLUMNS)
	@awk -f $(SRC)/sql/script.awk $(COLUMNS) $(SQL_PARTS) > $@.new
	@if cmp -s $@.new $@; then rm $@.new; touch $@; else mv $@.new $@; fi

# The inbox for databases that can have no extension, of the extension's script.
INBOX_FILE = inbox/outbox_inbox.sql
$(INBOX_FILE): inbox/single-file inbox/outbox_inbox.control $(wildcard inbox/outbox_inbox--*.sql)
	@sh inbox/single-file
.PHONY: inbox
inbox: $(INBOX_FILE)

# sql/inbox runs it.
ifneq ($(PGXS),)
all: $(SQL_SCRIPT)
installcheck: $(INBOX_FILE)
endif

# After the include, which sets it empty.
PROVE_FLAGS = --timer

export PG_CONFIG

# ---------------------------------------------------------------------------
# Tests

.PHONY: test test-core full-runs test-matrix test-pg-upgrade test-faults test-soak test-ddl test-valgrind test-sanitize check-static fuzz test-broker-fuzz test-alloc test-trade test-monitoring test-clients test-night states-doc test-sim test-without demo setup tools check-unit check-sim check-regress check-isolation check-worker check-tap test-content

setup:
	@.ci/setup

# A compiler for each processor, unless the caller has said how many.
BUILD_JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j $(shell nproc))

# $(MAKE) and not a prerequisite: pg_config may exist only after setup.
test: setup
	$(MAKE) $(BUILD_JOBS) WERROR=1 with_llvm=no all
	@$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES="meta unit sim regress isolation worker without tap"

# The core of it, for further versions of PostgreSQL and RabbitMQ: the whole pattern,
# crashes, an outage, stops, crash points, the order of each key.  Which TAP files
# that are, and which are of the fault suite, is said in them ("# suite:").
test-core: setup
	$(MAKE) $(BUILD_JOBS) WERROR=1 with_llvm=no all
	@$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES="unit regress isolation worker tap" TAP_SUITE=core

# One after the other, from clean clones; begun again, it goes on where it was ended.
full-runs:
	@test/tools/full-runs $(RUN)

# `make test` on other releases of Debian, with QUICK=1 `make test-core`.
test-matrix:
	@QUICK='$(QUICK)' test/tools/matrix $(SUITE)

# Nothing else needs capture, or debezium.
test-without: setup
	@test/tools/without-check $(PART)

# In a folder with the servers of several releases of Debian, as root.
test-pg-upgrade:
	@test/tools/pg-upgrade-test

# What is marked "faults"; most of it ends in a check of the history of all messages.
# The results are written however it ends: a loss is a result, too.
test-faults: export OUTBOX_TEST_FULL = 1
# what a test waits for a query or a server; a million messages take their time
test-faults: export PG_TEST_TIMEOUT_DEFAULT = 900
test-faults: setup
	$(MAKE) WERROR=1 with_llvm=no all
	@rm -f tmp_check/checks tmp_check/stop-times.md; \
	$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES=tap TAP_SUITE=faults; \
	status=$$?; \
	test/tools/fault-report tmp_check/checks doc/dev/fault-results.md && \
		cat doc/dev/fault-results.md || status=1; \
	if [ -f tmp_check/stop-times.md ]; then cp tmp_check/stop-times.md doc/dev/; fi; \
	exit $$status

# A connection that is reset again and again; the memory and the descriptors of
# launcher and worker must not grow.
test-soak: export OUTBOX_TEST_SOAK = $(or $(SECONDS),3600)
test-soak: setup
	$(MAKE) WERROR=1 with_llvm=no all
	@$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES=tap TESTS=resources PROVE_FLAGS='--timer -v'

# Behind a pooler, under a cluster manager, restored by a backup manager.
test-trade:
	@.ci/setup trade
	$(MAKE) WERROR=1 with_llvm=no all
	@$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES=tap PROVE_FLAGS='--timer -v' TAP_JOBS=1 \
		TESTS='$(or $(TESTS),$(sort $(wildcard test/trade/*.pl)))'

# What monitoring/ has, with a real Prometheus and both exporters.
test-monitoring:
	@.ci/setup monitoring
	$(MAKE) WERROR=1 with_llvm=no all
	@$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES=tap PROVE_FLAGS='--timer -v' TAP_JOBS=1 \
		TESTS='$(or $(TESTS),$(filter-out %/night.pl,$(sort $(wildcard test/monitoring/*.pl))))'

# Programs in other languages, with drivers from their registries.  They are built
# before the servers are there, by test/clients/build, which says why.
CLIENT_TESTS = $(if $(TESTS),$(foreach t,$(TESTS),$(firstword $(wildcard $(t) test/clients/$(t).pl) $(t))),$(sort $(wildcard test/clients/*.pl)))
test-clients:
	@.ci/setup clients
	$(MAKE) WERROR=1 with_llvm=no all
	@test/clients/build $(CLIENT_TESTS)
	@CLIENTS='$(abspath tmp_check/clients)' \
		$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES=tap PROVE_FLAGS='--timer -v' TAP_JOBS=1 \
		TESTS='$(CLIENT_TESTS)'

# One fault after the other, mended as the runbook says; its timeline is doc/dev/bad-night.md.
test-night:
	@.ci/setup monitoring
	$(MAKE) WERROR=1 with_llvm=no all
	@$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES=tap PROVE_FLAGS='--timer -v' TESTS=test/monitoring/night.pl
	@if [ -f tmp_check/monitoring/bad-night ]; then cp tmp_check/monitoring/bad-night doc/dev/bad-night.md; fi

# States of a bad night, each with what was shown and what its command did.
states-doc: setup
	@$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES=tap PROVE_FLAGS=-v TESTS='states problems' >tmp_check/states.log && \
	for part in doc more; do sed -n "s/^.*# $$part: \{0,1\}//p" tmp_check/states.log; done >doc/dev/states.md

# Random additions of an administrator to the tables, and maintenance, beside
# sessions that enqueue.  OUTBOX_SEED=N repeats what was drawn.
test-ddl: export OUTBOX_TEST_DDL = $(or $(SECONDS),3600)
test-ddl: setup
	$(MAKE) WERROR=1 with_llvm=no all
	@$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES=tap TESTS=ddl_beside PROVE_FLAGS='--timer -v'

# Random messages of any content, through every way in, against an oracle.
# OUTBOX_SEED=N repeats what was drawn.
test-content: export OUTBOX_TEST_CONTENT = $(or $(SECONDS),600)
test-content: setup
	$(MAKE) WERROR=1 with_llvm=no all
	@$(MAKE) -s WERROR=1 with_llvm=no run-checks SUITES=tap TESTS=content_random PROVE_FLAGS='--timer -v'

# Histories of the relay without servers, see doc/dev/simulator.md.
test-sim: setup
	@$(MAKE) -s -C test/sim run FULL='$(FULL)' SEED='$(SEED)' $(if $(SECONDS),SECONDS='$(SECONDS)')

# Servers under valgrind, and undefined behaviour in the library ends the process.
# What the server keeps in its memory contexts is watched by the block only, as it
# is not built for more; what librabbitmq and we allocate is, byte by byte.  Needs
# valgrind.  (AddressSanitizer cannot be preloaded into Debian's server: it hangs
# in bindtextdomain().)
test-valgrind: setup
	@command -v valgrind >/dev/null || { echo 'valgrind is not installed' >&2; exit 1; }
	$(MAKE) WERROR=1 with_llvm=no all
	@OUTBOX_TEST_TIMEOUT=300 PG_TEST_TIMEOUT_DEFAULT=900 SANITIZER=valgrind \
		$(MAKE) -s with_llvm=no run-checks SUITES=tap TESTS='$(or $(TESTS),ddl_additions)'

# On a server that is built from PostgreSQL's source with assertions: all but the
# TAP tests beyond the core under AddressSanitizer, or without TESTS what needs no broker under valgrind, or with
# caches that are thrown away whenever they may be.
test-sanitize:
	@.ci/setup sanitize
	@SUITES='$(SUITES)' TESTS='$(TESTS)' TAP_SUITE='$(TAP_SUITE)' TAP_JOBS='$(TAP_JOBS)' \
		PROVE_FLAGS='$(PROVE_FLAGS)' test/tools/sanitize $(FLAVOUR)

WHAT_test-broker-fuzz = broker
WHAT_test-alloc = alloc
# Two static analyzers; what they are wrong about is in test/static, with reasons.
check-static:
	@.ci/setup static
	@test/tools/static-check

# Parts of src/ in programs without a server, with AddressSanitizer and UBSan; found
# inputs are kept in tmp_check/fuzz.
fuzz test-broker-fuzz test-alloc:
	@.ci/setup fuzz
	@$(MAKE) -s -C test/fuzz $(or $(WHAT_$@),run) \
		$(if $(SECONDS),SECONDS='$(SECONDS)') $(if $(TARGET),TARGET='$(TARGET)')

ifeq ($(filter-out 0,$(INSTALLED)),)
# One line in front of the story: the commands of the build go to a file, what the
# compiler complains about is shown.
BUILD_LOG = tmp_check/demo-build.log

demo: setup
	@mkdir -p tmp_check; printf 'Building the extension ... '; \
	if $(MAKE) --no-print-directory with_llvm=no all >'$(BUILD_LOG)' 2>'$(BUILD_LOG).err'; then \
		echo done; status=0; \
	else \
		echo failed; status=1; \
	fi; \
	cat '$(BUILD_LOG).err' >&2; cat '$(BUILD_LOG).err' >>'$(BUILD_LOG)'; rm -f '$(BUILD_LOG).err'; \
	[ "$$(id -u)" -ne 0 ] || chown -R --reference=. tmp_check; \
	[ $$status -eq 0 ] || { echo 'The whole output is in $(BUILD_LOG).' >&2; exit 1; }
	@KEEP='$(KEEP)' examples/orders/run
else
demo:
	@KEEP='$(KEEP)' INSTALLED=1 examples/orders/run
endif

# The only target that changes the machine's own servers.
.PHONY: quickstart
quickstart:
	@examples/quickstart/outbox-quickstart --source '$(CURDIR)'

# Without assertions, whatever the tests have built.
.PHONY: bench bench-quick bench-soak
MINUTES = 30
bench: BENCH_ARGS = $(SCENARIO)
bench-quick: BENCH_ARGS = --quick $(SCENARIO)
bench-soak: BENCH_ARGS = --soak $(MINUTES)
bench bench-quick bench-soak: setup
	$(MAKE) with_llvm=no all
	@$(MAKE) -s tools
	@$(MAKE) -s -C test/bench OUT='$(abspath $(TOOLS_BIN))' WARNINGS='$(WARNINGS)'
	@test/bench/run --bin '$(TOOLS_BIN)' $(if $(DOC),--doc) $(if $(FACTOR),--factor '$(FACTOR)') \
		$(if $(KEEP),--keep '$(KEEP)') $(BENCH_ARGS)

.PHONY: bench-guard
bench-guard:
	@.ci/setup guard
	@$(MAKE) -s tools
	@$(MAKE) -s -C test/bench guard OUT='$(abspath $(TOOLS_BIN))' WARNINGS='$(WARNINGS)'
	@test/bench/guard --bin '$(TOOLS_BIN)' $(if $(BASE),--base '$(BASE)') $(if $(NEW),--new '$(NEW)')

check-unit check-sim: check-%:
	@$(MAKE) -s run-checks SUITES=$*

check-regress check-isolation check-worker check-tap: check-%:
	$(MAKE) with_llvm=no all
	@$(MAKE) -s with_llvm=no run-checks SUITES=$*

.PHONY: run-checks
run-checks: $(INBOX_FILE)
	@ASSERT=1 REGRESS='$(strip $(REGRESS))' ISOLATION='$(strip $(ISOLATION))' \
		REGRESS_WORKER='$(strip $(REGRESS_WORKER))' \
		ISOLATION_WORKER='$(strip $(ISOLATION_WORKER))' \
		TESTS='$(TESTS)' TAP_SUITE='$(TAP_SUITE)' TAP_JOBS='$(TAP_JOBS)' PROVE_FLAGS='$(PROVE_FLAGS)' KEEP='$(KEEP)' \
		test/tools/check $(SUITES)

# Programs that the tests use: they speak AMQP, not PostgreSQL.
tools: $(addprefix $(TOOLS_BIN)/,$(TOOLS))

# For LD_PRELOAD.
$(TOOLS_BIN)/%.so: test/tools/%.c
	@mkdir -p $(TOOLS_BIN)
	$(or $(CC),cc) -std=gnu11 -O2 -g -Wall $(WARNINGS) $(if $(WERROR),-Werror) -shared -fPIC -o $@ $< -ldl -lresolv

$(TOOLS_BIN)/%: test/tools/%.c test/tools/amqp_tool.h test/tools/commands.h
	@mkdir -p $(TOOLS_BIN)
	$(or $(CC),cc) -std=gnu11 -O2 -g -Wall $(WARNINGS) $(if $(WERROR),-Werror) -o $@ $< -lrabbitmq

clean: clean-tests
.PHONY: clean-tests
clean-tests:
	@if [ -f test/unit/Makefile ]; then $(MAKE) -s -C test/unit clean; fi
	@rm -rf tmp_check/sim

# What PGXN takes: the files of the last commit, and the inbox's single file of that.
.PHONY: dist
DIST = .
DIST_NAME = outbox-$(shell sed -n 's/^  "version": "\(.*\)",/\1/p' META.json)
dist:
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	git archive HEAD inbox | tar xf - -C "$$dir" && sh "$$dir/inbox/single-file" && \
	git archive --format zip --prefix=$(DIST_NAME)/inbox/ --add-file="$$dir/$(INBOX_FILE)" \
		--prefix=$(DIST_NAME)/ -o '$(DIST)/$(DIST_NAME).zip' HEAD

# Into tmp_check/deb and tmp_check/rpm.
.PHONY: deb rpm
deb:
	@test/tools/deb tmp_check/deb
rpm:
	@test/tools/rpm tmp_check/rpm

# Builds, checks, installs and uses the packages in folders of Debian's releases.
# Needs root, and about ten minutes for a release.
.PHONY: test-packages test-images test-dist
test-packages:
	@test/tools/packages $(SUITE)

# Builds the Dockerfile on a stand-in for the official image, and runs what it makes.
# Needs root.
test-images:
	@test/tools/images $(SUITE)

# The archive of the last commit, alone on a bare Debian.  Needs root.
test-dist:
	@TARGET='$(TARGET)' test/tools/dist $(SUITE)
