# `make` lists the targets. All make .venv themselves and need nothing but Python 3.11 and make.
.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
PYTEST := $(PY) -m pytest -q
TWO    := $(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder
STAGES := $(PY) tools/run_stages.py
GATE   := not long and not release and not measure
SCENES := tests/simulation tests/integration tests/spark
SEEDS  ?= 300
WITH   ?= # files of tests/, whose scenes `make processes` runs as well
unexport PYTHONDONTWRITEBYTECODE # else each process of the tests, some thousand, compiles all that it imports: a third of its start

export RANGELOG_TEST_RUN := $(or $(RANGELOG_TEST_RUN),$(shell date +%Y%m%dT%H%M%S)) # of which second tries are counted together

.NOTPARALLEL: # two parts of `make test` at once would be in each other's way
.PHONY: help install demo test long release measure affected quick unit processes spark scenes scenes-alone release-tests measure-tests check sim sim-fresh sweep mutants model chaos fuzz crash-points corruption raft-sim \
	pd-histories security whole reliability reliability-table pd-scale placement-scale storm bench bench-smoke compiled docs helm kubernetes proto blocking lock clean

help:
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is needed (or: make PYTHON=python3 …)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: Python 3.11 or newer is needed"; exit 1; }
	@echo "Installing rangelog with all its parts, Spark and the tools of development into $(VENV): about 2 GB, once; one to three minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) tools/install.py requirements.lock
	@touch $(READY)

##@ To use it

install: $(READY) ## rangelog and pdctl into .venv/bin, with everything that the other targets need
	@echo "installed: export PATH=\"$(CURDIR)/$(VENV)/bin:\$$PATH\"; rangelog local"

demo: $(READY) ## three minutes and a report: 336,776 flights through failures, tiering, Spark, a topic, a group and a table
	$(VENV)/bin/rangelog demo

docs: $(READY) ## the site of docs/ and of the public docstrings, into build/site; a warning fails it
	@printed=$$(NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict 2>&1) || { echo "$$printed"; exit 1; }
	@echo "docs: build/site/index.html (with its search: $(PY) -m http.server -d build/site -b 127.0.0.1 8000)"

clean: ## remove what was made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f core/rangelog_core/_record_codec.*.so
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ To change it

test: $(READY) ## the gate: every check, and every test that has no target of its own below
	@$(STAGES) test check unit processes

long: $(READY) ## scenes of a minute and more; some of them: SCENES="tests/…"
	@$(STAGES) long scenes $(if $(filter file,$(origin SCENES)),scenes-alone,SCENES="$(SCENES)")

release: $(READY) ## wheels, images, the chart's pods, servers and programs of others
	@$(STAGES) release release-tests

measure: $(READY) ## what asserts a rate, a percentile or a wall time: on a machine with nothing else to do
	@$(STAGES) measure measure-tests

affected: $(READY) ## of the gate what a change needs, by the import graph: what differs from HEAD, or from BASE=commit
	$(PY) tools/affected.py $(BASE)

quick: $(READY) ## house rules and unit tests alone, under a minute
	$(PYTEST) -n 2 --dist worksteal -m "$(GATE)" tests/tidy tests/unit tests/scenarios

unit: $(READY) ## cores, codecs, state machines, simulation: the longest first, so that the two workers end together
	$(TWO) -m "not alone and $(GATE)" tests/simulation tests/corruption tests/crash_points tests/fuzz tests/model tests/unit tests/scenarios

processes: $(READY) ## real processes on loopback, those of Spark beside the others; then those alone: WITH="tests/…"
	$(TWO) -m "not alone and (scene or $(GATE))" --scenes "$(WITH)" tests/spark tests/integration
	$(PYTEST) -m "alone and $(GATE)" tests/integration

spark: $(READY) ## Spark alone: hot and tiered ranges, its jobs
	$(TWO) -m "not alone and $(GATE)" tests/spark

scenes: $(READY)
	$(TWO) -m "long and not alone" $(SCENES)

scenes-alone: $(READY)
	$(PYTEST) -m "long and alone" $(SCENES)

release-tests: $(READY)
	$(PYTEST) -m release tests/unit tests/integration tests/spark

measure-tests: $(READY)
	$(PYTEST) -m measure tests/unit tests/simulation tests/integration tests/spark

check: $(READY) ## format, lint, types, import contracts, stubs, lock file, reference pages, house rules, site
	@$(PY) tools/check.py

##@ Suites of their own

sim: $(READY) ## simulated clusters: SEEDS=n of them, or SEED=k alone with its trace
	$(PY) tests/simulation/run.py $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS))

sim-fresh: $(READY) ## 1,000 seeds drawn from the commit's id, which no run has seen before
	$(PY) tests/simulation/run.py --fresh --seeds $(if $(filter file,$(origin SEEDS)),1000,$(SEEDS))

sweep: $(READY) ## fresh seeds of this commit at low priority until Ctrl-C, or MINUTES=n, SEEDS=n; into docs/reliability/sweep.json
	@$(PY) tests/simulation/sweep.py $(if $(MINUTES),--minutes $(MINUTES)) $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS))

mutants: $(READY) ## wrong choices put in on purpose: each must be caught by the simulation: ONLY=a,b
	$(PY) tests/mutants/run.py $(if $(ONLY),--only $(ONLY))

model: $(READY) ## every state of a small instance: the seal, the tier lifecycle, topics, transactions, right and wrong
	$(PY) tests/model/check.py $(if $(QUICK),--quick)

chaos: $(READY) ## a real cluster through every kind of fault: TIMES=n of each, KINDS=a,b, in the order of SEED=k
	$(PY) tests/chaos/run.py --times $(or $(TIMES),5) --kinds "$(KINDS)" $(if $(SEED),--seed $(SEED))

fuzz: $(READY) ## every decoder, SECONDS=n each: TARGET=name alone, other inputs with SEED=k
	$(PY) tests/fuzz/run.py --seconds $(or $(SECONDS),8) $(if $(TARGET),--target $(TARGET)) $(if $(SEED),--seed $(SEED))

crash-points: $(READY) ## the log and the Raft files cut at every call, all of it: SEEDS=n workloads
	CRASH_POINTS_ALL=1 $(PYTEST) tests/crash_points tests/integration/test_crash_points_process.py
	$(PY) tests/crash_points/run.py --all $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS))

corruption: $(READY) ## every byte flipped, every length cut, an S3 that lies: all of it
	$(PY) tests/corruption/run.py --all

reliability: $(READY) ## every suite in its whole form, one after the other (hours), then the table of docs/RELIABILITY.md
	rm -rf build/reliability
	@$(MAKE) --no-print-directory --keep-going whole; failed=$$?; $(MAKE) --no-print-directory reliability-table; exit $$failed

whole: SEEDS = 3000
whole: sim raft-sim mutants model crash-points corruption fuzz chaos pd-histories

raft-sim: $(READY) ## the placement drivers' Raft alone, simulated: 300 seeds
	SEEDS=300 $(PYTEST) tests/simulation/test_raft_simulation.py

pd-histories: $(READY) ## calls on three real placement drivers whose leaders die: one order must fit them all
	$(PYTEST) tests/integration/test_pd_histories.py

reliability-table: $(READY) ## write that table from what the suites left in build/reliability
	$(PY) tools/reliability_table.py

security: $(READY) ## a real cluster with TLS: every caller at every port, every role at every call
	$(PY) tests/security/run.py

##@ Measure

bench: $(READY) ## rangelog and its peers side by side, an hour and a half: ARGS="--quick", ARGS="--system nats --only latency"
	bench/peers/install.sh
	$(PY) bench/side_by_side.py $(ARGS)

pd-scale: $(READY) ## a placement driver with 100,000 streams: its rounds, calls, heartbeats, snapshot, start: ARGS="--streams 10000 …"
	$(PY) tests/scale/pd_scale.py $(ARGS)

placement-scale: $(READY) ## 1,000 servers, 1,000,000 ranges: a placement, how even they are, a server's death: ARGS="--ranges 100000 …"
	$(PY) tests/scale/placement_scale.py $(ARGS)

storm: $(READY) ## a range server dies under 10,000 open streams: how long until all ack again: ARGS="--streams 1000"
	$(PY) tests/scale/storm.py $(ARGS)

bench-smoke: $(READY) ## one minute: whether anything became twice as slow as it was
	$(VENV)/bin/rangelog bench --smoke bench/baseline.json

##@ Make

compiled: $(READY) ## the loops over records as a compiled module, beside its source: optional, needs a C compiler and the package index
	RANGELOG_COMPILE=1 $(PY) -m pip install --quiet --disable-pip-version-check --no-deps -e .
	RANGELOG_PURE= $(PY) -c 'from rangelog_core import record_codec; assert record_codec.COMPILED, "not found after the build"'

HELM_VERSION := v3.18.4
HELM_PROGRAM := build/bin/helm

$(HELM_PROGRAM):
	@command -v go >/dev/null || { echo "make helm: Go is needed, to build helm $(HELM_VERSION)"; exit 1; }
	GOBIN=$(CURDIR)/build/bin go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

helm: $(READY) $(HELM_PROGRAM) ## the chart by helm itself (needs Go, once): lint, renderings, golden copies; write these: UPDATE=1
	$(PY) tools/helm_golden.py --helm $(HELM_PROGRAM) $(if $(UPDATE),--update)
	$(PYTEST) tests/unit/deploy/test_chart.py

KUBE_APISERVER := build/bin/kube-apiserver
KUBE_VERSION := -X k8s.io/component-base/version.gitVersion=v1.31.4 -X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=31

$(KUBE_APISERVER):
	@command -v go >/dev/null || { echo "make kubernetes: Go is needed, to build an API server of Kubernetes"; exit 1; }
	cd tools/kube_apiserver && go build -ldflags "$(KUBE_VERSION)" -o $(CURDIR)/$(KUBE_APISERVER) .

kubernetes: $(READY) $(HELM_PROGRAM) $(KUBE_APISERVER) ## the chart by a real API server (needs Go, half an hour once, and etcd): installed, upgraded, denied
	$(PYTEST) tests/integration/test_chart_api_server.py

proto: $(READY) ## generate the stubs from the .proto files
	$(PY) tools/generate_stubs.py

blocking: $(READY) ## generate the blocking classes from the asynchronous ones
	$(PY) tools/generate_blocking.py

lock: $(READY) ## pin all dependencies anew
	$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--no-header --extra all --extra dev pyproject.toml -o requirements.lock
