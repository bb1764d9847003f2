# `make run` and `make test` need nothing but python3 (3.11 or newer); everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/wharfinger/__init__.py)

SYSTEMS := placement reservation resource_class resource_policy scheduling_policy
CORE := admission api client controllers engine http install node plugins scenario scheduler simulate store webhook
EMPTY :=
SPACE := $(EMPTY) $(EMPTY)
COMMA := ,

.PHONY: help run web test test-web test-without-systems test-kubernetes test-predictions test-scenarios-embedded test-solver test-node test-node-whole test-conformance test-conformance-node test-ocm bench-kubernetes bench-apiserver bench-dashboard bench-memory bench-instructions image chart reference docs man release check-wheels test-pythons lint format setup bench fuzz fuzz-api fuzz-campaign fuzz-kills soak lock clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "wharfinger needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up $(VENV) (once; about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@# Compiled now, so that commands start fast even where Python is told to write no bytecode as it goes.
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib src > /dev/null 2>&1 || true
	@touch $(READY)

setup: $(READY)  ## make .venv with locked versions of everything

run: $(READY)  ## start the control plane on this machine, with sample nodes and workloads
	@$(BIN)/python scripts/web.py
	@$(BIN)/wharf up --sample

web: $(READY)  ## build the page of the dashboard; needs PyPI and the npm registry once
	@$(BIN)/python scripts/web.py --required

test-web: $(READY)  ## the tests of the page's own code; builds the page, too
	@$(BIN)/python scripts/web.py --required --test

test: $(READY)  ## the whole test suite
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-without-systems: $(READY)  ## the tests of the core, with each system left out in turn and with all of them left out
	@for systems in $(SYSTEMS) $(subst $(SPACE),$(COMMA),$(SYSTEMS)); do echo "without $$systems"; \
	  WHARF_DISABLED_SYSTEMS=$$systems $(BIN)/python -m pytest -n 2 --dist worksteal $(addprefix tests/,$(CORE)) || exit 1; done

test-kubernetes: $(READY)  ## the tests against a real Kubernetes, whose programs are built once and kept in the cache
	@$(BIN)/python -m tests.kubernetes.binaries && $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/kubernetes || [ $$? -eq 75 ]

test-predictions: $(READY)  ## random worlds on a real control plane, each stage predicted before it happens: WORLDS=5 SEED=31 STAGES=6 ALLOWED=0
	@$(BIN)/python -m tests.kubernetes.binaries && $(BIN)/python -m tests.predictions --at-once 2 --attempts 2 --worlds $(or $(WORLDS),5) --seed $(or $(SEED),31) --stages $(or $(STAGES),6) --allowed $(or $(ALLOWED),0) || [ $$? -eq 75 ]

test-node: $(READY)  ## real containers: a kubelet that joins `wharf up`, and a real cluster from nothing; needs root, Go, runc, CNI plugins, nftables and busybox
	@$(BIN)/python -m pytest -rs tests/real_node

test-node-whole: $(READY)  ## also upgrade and restart under load, a reboot of the node, removal, and the Helm chart
	@WHARF_NODE=whole $(BIN)/python -m pytest -rs tests/real_node/test_from_nothing.py tests/real_node/test_helm.py

test-conformance: $(READY)  ## upstream's own specs against `wharf up`: SPECS="--area scheduling" for a part of them
	@$(BIN)/python -m tests.conformance $(SPECS)

test-conformance-node: $(READY)  ## upstream's specs that need containers, with a real node that joins `wharf up`
	@$(BIN)/python -m tests.conformance --real-node $(SPECS)

test-ocm: $(READY)  ## clients and specs of Open Cluster Management on our hub: PARTS="specs decisions" for some of them
	@$(BIN)/python -m tests.ocm $(PARTS)

test-scenarios-embedded: $(READY)  ## all scenarios on a running `wharf up`, each with the configuration that it needs
	@$(BIN)/python -m tests.scenarios.embedded

test-solver:  ## repacking and capacity with OR-Tools, which needs an older protobuf, so it has an environment of its own
	@test -x .venv-solver/bin/pytest || { $(PYTHON) -m venv .venv-solver && \
	  .venv-solver/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-solver.lock && \
	  .venv-solver/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .; }
	@WHARF_REQUIRE=ortools .venv-solver/bin/python -m pytest -q tests/repack tests/capacity

bench-kubernetes: $(READY)  ## side by side with the stock scheduler on a real API server: NODES=5000 PODS=10000 BUSY=0
	@$(BIN)/python -m tests.kubernetes.bench --nodes $(or $(NODES),5000) --pods $(or $(PODS),10000) --busy $(or $(BUSY),0)

bench-apiserver: $(READY)  ## our API server and kube-apiserver with etcd under one client: NODES=1000 INFORMERS=0 STORED=100000 PODS=5000 WATCHERS=100
	@$(BIN)/python -m tests.kubernetes.bench_apiserver --nodes $(or $(NODES),1000) --stored $(or $(STORED),100000) \
	  --informers $(or $(INFORMERS),0) --pods $(or $(PODS),5000) --watchers $(or $(WATCHERS),100)

bench-dashboard: $(READY)  ## the dashboard of a large cluster in Chromium: bundle, first paint, updates, memory, frames: NODES=5000 PODS=50000
	@$(BIN)/python scripts/web.py --required
	@$(BIN)/python -m tests.dashboard.measure --nodes $(or $(NODES),5000) --pods $(or $(PODS),50000)

bench-memory: $(READY)  ## what the installed programs use on clusters of several sizes: NODES="100 1000 5000"
	@$(BIN)/python -m tests.memory --nodes $(or $(NODES),100 1000 5000)

bench-instructions: $(READY)  ## instructions of short workloads against a baseline, with perf or valgrind: SAVE=--save for a new one
	@$(BIN)/python -m tests.instructions $(SAVE) || [ $$? -eq 75 ]

image: $(READY)  ## the image that `wharf install` runs, as an archive in dist/, without Docker: IMAGE=wharfinger:VERSION
	@$(BIN)/python scripts/web.py
	@$(BIN)/python -m scripts.image --tag $(or $(IMAGE),wharfinger:$(VERSION))

chart: $(READY)  ## the Helm chart, from the same source as `wharf install`
	@$(BIN)/python -m scripts.chart

reference: $(READY)  ## the reference pages of the documentation, from the code
	@$(BIN)/python -m scripts.reference

docs: $(READY) .venv-docs/.ready  ## the documentation as a site, in build/site; needs PyPI and the npm registry once
	@$(BIN)/python -m scripts.site

man: $(READY)  ## the man pages, in build/man: MANPATH=build/man man wharf-simulate
	@$(BIN)/python -m scripts.reference --man build/man/man1

release: $(READY) .venv-docs/.ready .venv-release/.ready  ## everything that a release consists of, built and checked, in dist/release: COMPLETE=1
	@$(BIN)/python -m scripts.release $(if $(COMPLETE),--complete)

check-wheels: $(READY)  ## whether every locked dependency has wheels for all Pythons and platforms; asks PyPI
	@$(BIN)/python -m scripts.wheels

test-pythons: $(READY)  ## a part of the suite on Python 3.11 to 3.14, as far as they can be had
	@$(BIN)/python -m pip install --quiet uv && $(BIN)/python -m scripts.pythons

.venv-docs/.ready .venv-release/.ready: .venv-%/.ready: requirements-%.lock
	@$(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-$*.lock
	@touch $@

lint: $(READY)  ## ruff, mypy, and the import contracts that hold the layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > .lint-imports.log 2>&1 && rm -f .lint-imports.log || { cat .lint-imports.log; rm -f .lint-imports.log; exit 1; }

format: $(READY)  ## let ruff mend what it can
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

fuzz: $(READY)  ## random histories under faults for ten minutes on all cores: FOR=10m PROFILE=default
	@$(BIN)/wharf fuzz --for $(or $(FOR),10m) --profile $(or $(PROFILE),default)

fuzz-campaign: $(READY)  ## thousands of seeds over all profiles; stop it at any time, and run it again to continue: FIRST=0 SEEDS=10000
	@$(BIN)/python -m tests.fuzz.campaign --first $(or $(FIRST),0) --seeds $(or $(SEEDS),10000)

fuzz-kills: $(READY)  ## `wharf up` killed again and again under load, on real files: KILLS=1000 in total; DIR=folder to continue later
	@$(BIN)/python -m tests.fuzz.embedded --kills $(or $(KILLS),1000) $(if $(DIR),--directory $(DIR))

soak: $(READY)  ## an hour of churn on `wharf up`: MINUTES=60 RATE=20 pods a second
	@$(BIN)/python -m tests.fuzz.soak --minutes $(or $(MINUTES),60) --rate $(or $(RATE),20)

fuzz-api: $(READY)  ## schemathesis against the API server's own OpenAPI, all groups: EXAMPLES=50 for each operation
	@WHARF_FUZZ=$(or $(EXAMPLES),50) $(BIN)/python -m pytest -n 2 --timeout 3600 tests/apiserver/test_fuzz.py tests/apiserver/test_hostile.py

bench: $(READY)  ## the benchmarks
	@$(BIN)/wharf bench

lock:  ## choose the newest versions that pyproject.toml allows
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile -q --upgrade --python-version 3.11 --universal --generate-hashes --no-header pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile -q --upgrade --python-version 3.11 --universal --generate-hashes --no-header pyproject.toml --extra replay --extra dask --group test --group lint -c requirements.lock -o requirements-dev.lock
	@$(BIN)/uv pip compile -q --upgrade --python-version 3.11 --universal --generate-hashes --no-header pyproject.toml --extra solver --group test-solver -o requirements-solver.lock
	@$(BIN)/uv pip compile -q --upgrade --python-version 3.11 --universal --generate-hashes --no-header --group pyproject.toml:docs -o requirements-docs.lock
	@$(BIN)/uv pip compile -q --upgrade --python-version 3.11 --universal --generate-hashes --no-header --group pyproject.toml:release -o requirements-release.lock

clean:  ## remove what was made
	rm -rf $(VENV) .venv-solver .venv-docs .venv-release .cache .mypy_cache .ruff_cache .hypothesis build dist web/node_modules src/wharfinger/dashboard/static
