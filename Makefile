# `make demo` and `make test` do all set-up by themselves, in .venv. `make` alone lists the targets.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
FULL   := $(VENV)/.installed-with-spark
SOURCE := metaclient adapters spark_connector benchmarks tests docs
# The interpreter and pip of a usable environment; a half-made or outdated one fails this and is made anew.
USABLE := import sys, pip; sys.exit(sys.version_info < (3, 11))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint essential live secure spark spark-versions sim fuzz attack oldest bench docs docs-site
.PHONY: release-check browser-tools screenshots clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@if ! $(PY) -c '$(USABLE)' 2>/dev/null; then \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	        echo "make: Python 3.11 or newer is needed, and '$(PYTHON)' is not that;" \
	             "name another one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }; \
	    echo "making $(VENV) (once; about a minute)"; \
	    $(PYTHON) -m venv --clear $(VENV); \
	fi
	@$(PY) -m pip install --quiet --no-input --editable '.[test,sim]'
	@touch $@

# Spark is 400 MB: what a newcomer types first does not wait for it.
$(FULL): $(STAMP)
	@$(PY) -m pip install --quiet --no-input --editable '.[test,sim,spark,connect]'
	@touch $@

setup: $(STAMP) ## make .venv and install the project into it

demo: $(STAMP) ## the product in one minute, on the embedded fake
	@$(VENV)/bin/metaclient demo

# Whole files go to the workers, because the tests of a file often share a served cluster.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() or 1, 4))')

test: lint browser-tools ## lint, every test that needs no JVM, then `make essential`
	$(PY) -m pytest --numprocesses $(WORKERS) --dist loadfile
	@$(MAKE) --no-print-directory essential

lint: $(FULL) ## ruff and mypy --strict
	$(PY) -m ruff check $(SOURCE)
	$(PY) -m ruff format --check $(SOURCE)
	$(PY) -m mypy

# $(call pytest,ARGUMENTS,WHAT): pytest's exit code 5 means that nothing was selected. That is no success, so say so.
define pytest
@$(PY) -m pytest $(1); code=$$?; \
if [ $$code -eq 5 ]; then echo "make $@: there are no $(2) yet, so nothing was checked" >&2; exit 1; fi; exit $$code
endef

# A real cluster on a busy machine has bad moments, and telling them from bugs is what a second try is for: what failed is
# run once more, alone. What fails twice is broken.
define twice
$(PY) -m pytest $(1) -o cache_dir=.pytest_cache/$(2) || { \
echo "make $@: once more, only what failed" >&2; \
$(PY) -m pytest $(1) -o cache_dir=.pytest_cache/$(2) --last-failed --last-failed-no-failures none; }
endef

essential: $(FULL) ## the essential tests on Spark and on a real HBase; without Java and Maven they are skipped
	$(call twice,-m 'spark and essential' tests/spark,spark)
	$(PY) -m tests.secure.install
	$(call twice,-m 'live and essential' tests/secure,secure)
	$(call twice,-m 'live and essential' tests/live,live)

live: $(FULL) ## tests against a real HBase on this machine
	$(call pytest,-m live tests,live tests)

SECURE_VERSIONS ?= 2.6.1 3.0.0-alpha-4

secure: $(FULL) ## tests against a real HBase with Kerberos and TLS; as root, what gssapi needs is installed by apt-get
	$(PY) -m tests.secure.install
	@for version in $(SECURE_VERSIONS); do \
	    echo "make $@: HBase $$version"; \
	    METACLIENT_SECURE_VERSION=$$version $(PY) -m pytest -m live tests/secure || exit 1; \
	done

spark: $(FULL) ## tests of the Spark connector
	$(call pytest,-m spark tests,Spark tests)

# For instance make spark-versions SPARK_VERSIONS=4.0 SPARK_TESTS="-m 'spark and essential' tests/spark"
SPARK_VERSIONS ?=
SPARK_TESTS ?=

spark-versions: $(STAMP) ## the Spark tests on Spark 4.0 to 4.3, each in an environment of its own
	$(PY) -m tests.spark_versions $(SPARK_VERSIONS) -- $(SPARK_TESTS)

sim: $(STAMP) ## the deterministic simulation
	$(call pytest,tests/simulation,simulation tests)

SECONDS ?= 60
SEED ?= 0

fuzz: $(STAMP) ## mutate recorded frames on every decoder (SECONDS=60 SEED=0)
	$(PY) -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

attack: $(STAMP) ## a lying network, interrupts, slow peers and hostile bytes against a served fake; three minutes
	$(call pytest,-m attack tests/attack,attacks)

OLDEST := .venv-oldest

oldest: ## the unit tests on the oldest versions of the dependencies that pyproject.toml allows
	$(PYTHON) -m venv --clear $(OLDEST)
	$(PYTHON) -m tests.oldest > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --no-input --constraint $(OLDEST)/constraints.txt \
	    --editable '.[test,sim,spark]'
	$(OLDEST)/bin/python -m pytest tests/unit

bench: $(STAMP) ## every benchmark, with its report
	@$(PY) -c 'import matplotlib' 2>/dev/null || $(PY) -m pip install --quiet --no-input --editable '.[plots]'
	$(PY) -m metaclient_bench run all

docs: $(FULL) ## run every example in README, docs and docstrings; check the links
	$(PY) -m pytest tests/test_readme.py metaclient adapters spark_connector

docs-site: $(FULL) ## build the site of docs/ into build/site, strictly, and check it
	@$(PY) -c 'import mkdocs, mkdocstrings_handlers.python' 2>/dev/null || \
	    $(PY) -m pip install --quiet --no-input --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	$(PY) -m pytest -m site tests/test_site.py
	@echo "build/site/index.html; with search: $(PY) -m http.server --directory build/site 8000"

DIST := build/release

release-check: $(FULL) ## what a release needs: versions, changelog, wheel, sdist, metadata, SBOM
	rm -rf $(DIST)
	$(PY) -m hatchling build -d $(DIST)
	$(PY) -m pip install --quiet --no-input 'twine>=6.1' 'cyclonedx-bom>=7'
	$(PY) -m twine check --strict $(DIST)/*.whl $(DIST)/*.tar.gz
	$(PYTHON) -m venv --clear $(DIST)/env
	$(DIST)/env/bin/python -m pip install --quiet --no-input $(DIST)/*.whl
	$(VENV)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	    --output-file $(DIST)/sbom.cdx.json $(DIST)/env/bin/python
	rm -rf $(DIST)/env
	$(PY) -m tests.release $(DIST)

# Debian's Chromium, where this is root and has apt: tests of the page are skipped without a browser, except with CI=true.
browser-tools: $(FULL)
	@$(PY) -c 'import playwright' 2>/dev/null || $(PY) -m pip install --quiet --no-input --editable '.[browser]'
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
	    [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && { \
	        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } \
	    || echo "make $@: there is no Chromium, and it cannot be installed: tests of the page are skipped" >&2; }

screenshots: browser-tools ## the pictures of docs/watch.md, made by the tests of the page
	METACLIENT_SCREENSHOTS=1 $(PY) -m pytest tests/browser -k pictures

clean: ## remove .venv, caches and what was built
	rm -rf $(VENV) $(OLDEST) .venv-spark-* build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find $(SOURCE) -name __pycache__ -type d -prune -exec rm -rf {} +
