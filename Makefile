# farshore: `make demo` and `make test` set up everything they need in the checkout (.venv/, .cache/).
# `make test` also wants Go (for toxiproxy), kcat and Debian's etcd; what is missing is said in one line with the command to run.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.ONESHELL:

# A Python built without optimisation, as pyenv builds them, takes up to twice the processor: then the distribution's is
# taken for a new .venv, where it has all that is needed. Distributions optimise, though Debian's does not say so.
OPTIMISED := import sys, sysconfig; sys.exit("--enable-optimizations" not in str(sysconfig.get_config_var("CONFIG_ARGS")))
COMPLETE := import sys, venv; from ensurepip import version; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell { ! python3 -c '$(OPTIMISED)' && /usr/bin/python3 -c '$(COMPLETE)' && echo /usr/bin/python3; } 2>/dev/null || echo python3)
BIN := .venv/bin
KAFKA_VERSIONS := 3.9.1 4.3.0
TOXIPROXY_VERSION := v2.12.0
LOCKED_EXTRAS := audit aws chaos demo dev
SOURCES := broker mirror failover monitoring chaos deploy tests
PYTEST ?= $(BIN)/python -m pytest
LANES := moves back servers brokers behind commands failover services locked looks
# Those that start all their servers themselves run beside the commands and the services, the others share theirs.
beside_commands := $(patsubst %,tests/interop/test_%.py,acl_freeze acl_sync acls audit_interrupt authorizing_cluster broker_on_zookeeper \
  cluster_of_brokers fleet_etcd kafka_acl_znodes kafka_user_znodes link_rights site_freeze)
beside_services := $(patsubst %,tests/interop/test_%.py,delete_horizon kafka_znodes mirror_truncated old_formats older_copy \
  three_brokers tutorial zookeeper zookeeper_locked zookeeper_tool)
# Users, rights and quotas: tools of Kafka's, one Java after the other; and what computes, or waits, beside these.
locked := $(patsubst %,tests/interop/test_%.py,client_quotas kafka_acls kafka_configs_users locked locked_broker token_broker tokens_beside_kafka) \
  $(wildcard tests/mirror/simulation/test_planted*.py) tests/failover/failback
# Whatever computes with a Spark in its own process is with those: one that starts costs twenty seconds of a processor.
servers := $(filter-out $(locked) $(beside_commands) $(beside_services),$(wildcard tests/interop/test_*.py)) tests/interop/side_by_side \
  tests/monitoring/audit
# Moves wait, for what comes late among others, more than they compute: they take turns with each other in lanes of their own.
moves := $(patsubst %,tests/deploy/cli/test_%.py,apply failover move_rights operation pending_offsets question refusals site_move)
back := $(patsubst %,tests/deploy/cli/test_%.py,failback failback_operation failback_site failback_taken_up failback_waves older_disk \
  skips_on_the_way_back stranded target_in_part third_site two_way_loss)
commands := $(filter-out $(moves) $(back),$(wildcard tests/deploy/cli/test_*.py)) $(beside_commands)
services := $(addprefix tests/,chaos chaos_runs monitoring/canary monitoring/metrics deploy/demo deploy/local) $(wildcard tests/deploy/test_*.py) \
  $(beside_services)
brokers := $(addprefix tests/,broker $(addprefix mirror/,coordinator fleet groups offsets topics)) $(wildcard tests/mirror/test_*.py)
behind := $(addprefix tests/failover/,drilling freezing journal losses planning)
failover := tests/failover/running
looks := tests/failover/observing
# The tests' files are small, and worth nothing after them: in memory, where it has so much room and what lies there may be run.
MEMORY := /dev/shm
MEMORY_ROOM_MB := 4096

export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test lint bench chaos hands mutants simulation worlds lock clean tools unit strangers kerberos rights
.DEFAULT_GOAL := setup

setup: .venv/.ready

.venv/.ready: requirements.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
	  echo "error: farshore needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	echo "setup: Python packages into .venv ..." >&2
	[[ -x $(BIN)/python ]] || "$(PYTHON)" -m venv .venv || {
	  echo "error: no venv in $(PYTHON); on Debian run: sudo apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Java is looked for each time: it can go away, and the check costs a blink.
.PHONY: java
java: .venv/.ready
	@$(BIN)/python -m deploy.tools.java

# Spark's Kafka connector has PySpark's own version, so the lock file decides which.
.cache/spark/.ready: requirements.lock | java
	@version=$$($(BIN)/python -c 'from importlib.metadata import version; print(version("pyspark"))')
	$(BIN)/python -m deploy.tools.fetch_jars spark ".cache/spark/$$version"
	touch $@

.cache/kafka/%/.complete: | java
	@$(BIN)/python -m deploy.tools.fetch_jars kafka $* .cache/kafka/$*

.cache/mirror-maker/%/.complete: | java
	@$(BIN)/python -m deploy.tools.fetch_jars mirror-maker $* .cache/mirror-maker/$*

.cache/bin/toxiproxy-server:
	@command -v go >/dev/null || {
	  echo "error: Go is needed to build toxiproxy; install Go 1.23 or newer, or put toxiproxy-server into .cache/bin" >&2; exit 1; }
	echo "setup: toxiproxy $(TOXIPROXY_VERSION) by go install ..." >&2
	GOBIN="$(CURDIR)/.cache/bin" go install github.com/Shopify/toxiproxy/v2/cmd/server@$(TOXIPROXY_VERSION)
	mv .cache/bin/server $@

# One behind the other, as Java: two apt-get at once refuse each other.
.PHONY: kcat
kcat: | java
	@command -v kcat >/dev/null && exit 0
	if [[ $$(id -u) == 0 ]] && command -v apt-get >/dev/null; then
	  echo "setup: kcat by apt-get ..." >&2
	  apt-get update -q >/dev/null; apt-get install -y -q kcat >/dev/null
	else
	  echo "error: kcat is needed for the tests of clients; run: sudo apt-get install kcat" >&2; exit 1
	fi

.PHONY: etcd
etcd: | kcat
	@[[ -x /usr/bin/etcd ]] && exit 0
	if [[ $$(id -u) == 0 ]] && command -v apt-get >/dev/null; then
	  echo "setup: etcd-server by apt-get ..." >&2
	  apt-get update -q >/dev/null; apt-get install -y -q etcd-server >/dev/null
	else
	  echo "error: etcd 3.4 is needed for the tests of fleets; run: sudo apt-get install etcd-server" >&2; exit 1
	fi

# A KDC, and what the extra `kerberos` is built with.
KERBEROS_FILES := /usr/sbin/krb5kdc /usr/sbin/kadmin.local /usr/bin/kinit /usr/bin/gcc /usr/include/gssapi/gssapi_ext.h
KERBEROS_PACKAGES := krb5-kdc krb5-admin-server krb5-user gcc python3-dev libkrb5-dev
.PHONY: kdc
kdc: | etcd
	@ls $(KERBEROS_FILES) >/dev/null 2>&1 && exit 0
	if [[ $$(id -u) == 0 ]] && command -v apt-get >/dev/null; then
	  echo "setup: Kerberos by apt-get ..." >&2
	  export DEBIAN_FRONTEND=noninteractive
	  apt-get update -q >/dev/null; apt-get install -y -q $(KERBEROS_PACKAGES) >/dev/null
	else
	  echo "error: a KDC is needed for the tests of Kerberos; run: sudo apt-get install $(KERBEROS_PACKAGES)" >&2; exit 1
	fi

# A lock file of its own, as it has no wheels: who needs no Kerberos needs no compiler. Nor is it worth optimising here.
.venv/.kerberos: requirements-kerberos.lock .venv/.ready | kdc
	@echo "setup: the extra kerberos into .venv ..." >&2
	CFLAGS=-O0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-kerberos.lock
	touch $@

# Looked for each time, as Java is.
.PHONY: classes
classes: java .cache/spark/.ready $(KAFKA_VERSIONS:%=.cache/kafka/%/.complete)
	@$(BIN)/python -m tests.class_archives $(KAFKA_VERSIONS)

tools: setup java kcat etcd .cache/bin/toxiproxy-server classes

# BROKERS=3: three at each site. WORKERS=3: three that share the links. SECURE=1: both sites by TLS and logins alone.
demo: setup java .cache/spark/.ready
	@$(BIN)/farshore demo $(BROKERS:%=--brokers %) $(WORKERS:%=--workers %) $(if $(SECURE),--secure)

check := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

# Those that need nothing but Python begin while Kafka, Spark and the tools are brought here. The longest go first.
bare := brokers behind failover looks lint
lanes := rest $(LANES) lint

# Runs side by side, about as long as each other: most tests wait for something, and leave the processors idle. All at
# once they would wait for the processors, and for longer than some of what they test does.
test: setup
	@made=()
	trap 'rm -rf "$${made[@]}"' EXIT
	room_mb=$$(df --output=avail -m $(MEMORY) 2>/dev/null | tail -n 1) || room_mb=0
	if (( room_mb >= $(MEMORY_ROOM_MB) )) && [[ -w $(MEMORY) ]] && ! findmnt -no OPTIONS $(MEMORY) | grep -qw noexec; then
	  export TMPDIR=$$(mktemp -d $(MEMORY)/farshore-tests-XXXXXX)
	  made+=("$$TMPDIR")
	fi
	notes=$$(mktemp -d)
	made+=("$$notes")
	echo "test: $(words $(lanes)) lanes, $(SIDE_BY_SIDE) at a time; what one has to say is shown when it ends, the first in some minutes" >&2
	$(again) --no-print-directory --keep-going --output-sync=target --jobs $(SIDE_BY_SIDE) NOTES="$$notes" $(lanes:%=lane-%)
	$(BIN)/python -m tests.second_go again "$$notes"

# Not by its name: with --dry-run, a recipe that has that is run.
again := $(MAKE)
SIDE_BY_SIDE := 8
timed = TIMEFORMAT="$@: %0R s, of a processor %0U and %0S s"; time
# In `make test`, which alone says where, a lane notes the tests that failed, for a second go behind all lanes, alone.
runs = $(if $(filter command,$(origin NOTES)),$(BIN)/python -m tests.second_go lane $(NOTES)/$@,$(PYTEST))
pytest_lane = $(timed) $(runs) -m "not slow" $(1)

.PHONY: $(lanes:%=lane-%)
$(patsubst %,lane-%,$(filter-out $(bare),$(lanes))): | tools
lane-lint: setup
	@$(check)
lane-rest: setup
	@$(call pytest_lane,$(foreach lane,$(LANES),$(patsubst %,--ignore=%,$($(lane)))))
$(LANES:%=lane-%): lane-%: setup
	@$(call pytest_lane,$($*))

# The tests that need nothing but Python: no Java, no servers of others.
unit: setup
	@$(PYTEST) -m "not slow" --ignore=tests/interop --ignore=tests/bench

# Not among the others: a compiler, and minutes of a machine that has none of it yet.
kerberos: tools .venv/.kerberos
	@$(PYTEST) -m "slow or not slow" tests/interop/test_kerberos.py

# What `make test` has no time for of logins and rights: all of Kafka's tools by every way in, and what `farshore link rights`
# prints taken away, one right after the other, at Apache Kafka itself.
by_rights := $(patsubst %,tests/deploy/cli/test_%_rights.py,audit change link move stranded) $(patsubst %,tests/interop/test_%.py,link_rights locked_broker \
  token_broker) tests/interop/side_by_side/test_denied.py
rights: tools
	@$(PYTEST) -m slow --timeout 7200 $(by_rights)

# The mirror's simulation with seeds that were never tried (COUNT of them); a seed that finds something tells how to run it again.
simulation: setup
	@FARSHORE_SIMULATION_SEEDS="$$(date +%s)00:$(or $(COUNT),5000)" $(PYTEST) tests/mirror/simulation/test_simulation.py

# All generated worlds whose seeds are fixed, of which `make test` plays the first of each family, and the planted bugs that
# only a long search sees. Some thirty minutes of one core.
worlds: setup
	@FARSHORE_WORLDS=all $(PYTEST) --timeout 7200 tests/mirror/simulation $(addprefix tests/broker/,simulation replication/simulation \
	  coordination/simulation controller/test_cluster_of_brokers.py groups/test_one_reader.py \
	  $(patsubst %,wire/test_%.py,codec oracles records)) tests/mirror/offsets \
	  tests/failover/running/test_moved_worlds.py $(patsubst %,tests/failover/failback/test_%.py,older_worlds rounds) \
	  $(patsubst %,tests/mirror/worker/test_%.py,acceptance honest_pairings)

lint: setup
	@$(check)

# Ten thousand clients that never log in, and one that has.
strangers: setup
	@$(BIN)/python -m tests.bench.strangers_bench

bench: tools .cache/mirror-maker/3.9.1/.complete
	@$(BIN)/python -m tests.bench

# Replicas, and whole brokers, in 10,000 simulated worlds each, fleets in 5,000 (WORLDS=500: fewer), controllers in 2,000, circles in 1,000;
# the long tests, 40 seeds of a minute each in which every record that is mirrored is compared (SEEDS=4: fewer), 100 in
# which three brokers are under faults (BROKERS_SEEDS), and 100 of fleets (FLEET_ROUNDS); 500 switchovers and failovers under
# trouble (MOVES). Four hours and more.
chaos: tools .venv/.kerberos
	@FARSHORE_REPLICATION_SEEDS="0:$(or $(WORLDS),10000)" FARSHORE_CONTROLLER_SEEDS="0:1000" \
	  FARSHORE_CLUSTER_SEEDS="0:$(or $(WORLDS),10000)" FARSHORE_FLEET_SEEDS="0:$(or $(WORLDS),5000)" \
	  FARSHORE_SIMULATION_CIRCLES="0:$(or $(WORLDS),1000)" \
	  $(PYTEST) --timeout 14400 tests/mirror/fleet/test_simulation.py::test_worlds \
	  tests/broker/replication/simulation/test_simulation.py tests/broker/controller/test_cluster_of_brokers.py \
	  tests/broker/simulation/test_simulation.py \
	  tests/mirror/simulation/test_circles.py::test_every_circle_ends_with_each_record_once_at_every_site
	FARSHORE_SWITCHOVER_SEEDS="0:$(or $(MOVES),500)" $(PYTEST) --timeout 14400 tests/failover/running/test_moved_worlds.py
	$(BIN)/python -m tests.chaos_runs losses --seeds $(or $(LOSSES),200) --jobs 2
	FARSHORE_CHAOS_SEEDS="$(or $(SEEDS),40)" FARSHORE_BROKERS_SEEDS="$(or $(BROKERS_SEEDS),100)" \
	  FARSHORE_FLEET_ROUNDS="$(or $(FLEET_ROUNDS),100)" $(PYTEST) -m slow --timeout 7200

# All that hands can do to a cluster, at twenty random moments and more for each kind of cluster; SEEDS=10: a quarter.
hands: tools
	@$(BIN)/python -m tests.chaos_runs hands --seeds $(or $(SEEDS),40) --jobs $(or $(JOBS),3)

# Small bugs planted one at a time: do the tests beside the code find them? About half an hour on two cores; may be stopped.
mutants: setup
	@$(BIN)/python -m tests.mutants $(MUTANTS)

lock: setup
	@compile="$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header"
	$$compile $(LOCKED_EXTRAS:%=--extra %) -o requirements.lock pyproject.toml
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["kerberos"])' |
	  $$compile -o requirements-kerberos.lock -

clean:
	rm -rf .venv .cache mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
