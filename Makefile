# Everything a developer types. `make demo` and `make test` set up all they need on a machine with Python and make.

PYTHON ?= python3
export PYTHON

# The stamp is named after this directory, so that a moved or copied tree makes its environment anew.
STAMP := .venv/.ready-$(shell printf '%s' '$(CURDIR)' | cksum | cut -d ' ' -f 1)

SERVICES := .venv/bin/python -m tests.support.services
WITH_JAVA := JAVA_HOME="$$(scripts/ensure_java.sh)" && export JAVA_HOME &&

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-deep test-services services services-status services-stop sim soak soak-services check house audit lock bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F '|' '{ printf "%-22s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make .venv with the pinned packages, and find or install Java 17
	@java_home="$$(scripts/ensure_java.sh)" && echo "ready: .venv, Java in $$java_home" \
	  || echo "ready: .venv, but without Java nothing that needs Spark will run"

# Java first: without it the demo must stop before it has written anything.
demo: ## run the demo, from an empty store to fresh views
	@$(WITH_JAVA) $(MAKE) --no-print-directory $(STAMP) && .venv/bin/viewkeeper demo

test: $(STAMP) ## run the tests, all but the deep ones (those that need Spark need Java 17)
	@scripts/run_tests.sh $(ARGS)

test-deep: $(STAMP) ## run every test, the deep ones too
	@VIEWKEEPER_DEEP=1 scripts/run_tests.sh $(ARGS)

services: $(STAMP) ## start a small real HBase on loopback: make services PORT_BASE=16000 REGION_SERVERS=2 THRIFT_SERVERS=1
	@$(WITH_JAVA) $(SERVICES) start $(if $(PORT_BASE),--port-base $(PORT_BASE)) \
	  $(if $(REGION_SERVERS),--region-servers $(REGION_SERVERS)) $(if $(THRIFT_SERVERS),--thrift-servers $(THRIFT_SERVERS))

services-status: $(STAMP) ## say which of these servers run, and where
	@$(SERVICES) status

services-stop: $(STAMP) ## stop the servers that `make services` started
	@$(WITH_JAVA) $(SERVICES) stop

test-services: $(STAMP) ## run the tests that need real servers: on those of `make services`, or on new ones
	@$(WITH_JAVA) .venv/bin/python -m pytest tests/services $(ARGS)

sim: $(STAMP) ## run schedules of faults: make sim SEED=4711 COUNT=400 STORE=hbase, or from a new seed
	@.venv/bin/python -m tests.support.simulation $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) \
	  $(if $(STORE),--store $(STORE))

soak: $(STAMP) ## run schedules of faults on all cores for a while: make soak MINUTES=60
	@.venv/bin/python -m tests.support.simulation --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) \
	  $(if $(STORE),--store $(STORE))

soak-services: $(STAMP) ## the same over a real HBase, with its own faults: make soak-services MINUTES=60 SEED=4711
	@$(WITH_JAVA) .venv/bin/python -m tests.support.hbase_soak --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

check: $(STAMP) ## run the quick checks: lint, format, types, style
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/python -m pytest -q tests/style

house: $(STAMP) ## write the figures of the house that got better: make house, or make house WORSE=yes for the others too
	@.venv/bin/python -m tests.support.ratchet $(if $(WORSE),--worse)

audit: ## ask for known faults of the pinned packages; says so where no service answers
	@scripts/audit.sh

lock: ## write the hashes of the pinned packages into requirements.lock
	@scripts/lock.sh

bench: $(STAMP) ## run the benchmarks
	@$(WITH_JAVA) .venv/bin/python -m benchmarks $(ARGS)

clean: ## remove the environment, caches, and what demos, benchmarks and servers left
	@[ ! -d .services ] || $(MAKE) --no-print-directory services-stop
	rm -rf .venv build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .demo .bench .services
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml requirements.lock
	@scripts/ensure_venv.sh $@
