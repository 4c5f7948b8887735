# Sets everything up and runs it. Needs Python 3.11 or newer; `make test` also needs Java 17 and Maven.
#   PYTHON=python3.12   the interpreter that .venv is made from
#   ARGS="..."          handed on: to `barnabas demo` by `make demo`, to pytest by `make test`

PYTHON ?= python3
ARGS ?=
COUNT ?= 1000000
SEED ?= 1
GIGABYTES ?= 20
MINUTES ?= 60
SANITIZED ?= 50000
# the extras that users install, but for Spark Connect's, which is not installed here
PINNED := demo values tls scapy tshark spark web report delta
# each says with --help what it measures and against what
BENCHES ?= decoder/run.py filter/run.py filter/names.py relay/run.py peers/run.py relay/clients.py rules/run.py translation/run.py captures/recording.py \
	captures/run.py captures/findings.py replay/run.py feed/run.py testing/run.py ui/run.py ui/pages.py ui/commands.py spark/tables.py spark/goals.py growth/run.py
# Most tests wait for brokers and clients: twice as many workers as cores. One group (one broker, one Spark session) stays on one worker.
WORKERS ?= -n 4 --dist loadgroup

VENV := .venv
BIN := $(VENV)/bin
CACHE := .cache
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
PRODUCT := decoder captures plugins proxy ui
# the accelerator is built by the installation: a newer one is installed again
NATIVE := setup.py $(wildcard */native/*.[ch])
APT_GET = $$( [ "$$(id -u)" = 0 ] || echo sudo ) env DEBIAN_FRONTEND=noninteractive apt-get -qq

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Hundreds of processes are started by the tests, three by each proxy: modules are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SUFFIXES:
.PHONY: help demo test everything check fuzz sanitize torture matrix bench lint broker sbom constraints docs docs-serve reference pictures tshark nft chromium java clean

help: ## list the targets
	@echo "Barnabas: see, record, replay and break Apache Kafka traffic"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'
	@echo 'Variables: PYTHON=python3.12 (which Python to use), ARGS="--headless --seconds 15" (passed on)'

demo: $(VENV)/.demo ## install and run the demonstration (mock brokers, real clients; no Java)
	@$(BIN)/barnabas demo $(ARGS)

test: $(VENV)/.test tshark nft chromium broker lint check ## lint, types, layers, all unit tests and a small part of the real ones; installs what they need (minutes)

everything: $(VENV)/.test tshark nft chromium broker lint sanitize ## every test, including slow variants and all real scenes (most of an hour)
	@echo "==> all tests"
	@$(BIN)/python -m pytest $(WORKERS) -m 'slow or not slow' $(ARGS)

check: $(VENV)/.test ## the everyday tests only, without installing or linting
	@echo "==> tests"
	@$(BIN)/python -m pytest $(WORKERS) $(ARGS)

fuzz: $(VENV)/.test ## feed mutated frames to the decoder, COUNT=100000000 of them (SEED=1)
	@PYTHONPATH=tests $(BIN)/python -m torture.decoder.fuzz run --count $(COUNT) --seed $(SEED)

sanitize: $(VENV)/.test ## the accelerator under gcc's address and undefined-behavior sanitizers: fuzzing, and failing allocations
	@echo "==> the accelerator under sanitizers"
	@PYTHONPATH=tests $(BIN)/python -m torture.decoder.sanitized all --count $(SANITIZED)

torture: $(VENV)/.test tshark broker ## 200 faults in front of three brokers, cuts, kills, 20 GB, a million mutations, a soak (docs/reliability.md)
	@BARNABAS_TORTURE=$${BARNABAS_TORTURE:-20} $(BIN)/python -m pytest tests/torture/proxy -m 'slow or not slow' --timeout 1800 $(ARGS)
	@PYTHONPATH=tests $(BIN)/python tests/torture/captures/killed.py --count 1000 --tshark 10
	@PYTHONPATH=tests $(BIN)/python -m torture.proxy.volume --gigabytes $(GIGABYTES) --record
	@PYTHONPATH=tests $(BIN)/python -m torture.decoder.fuzz run --count $(COUNT) --seed $(SEED)
	@PYTHONPATH=tests $(BIN)/python -m torture.proxy.soak --minutes $(MINUTES)

matrix: $(VENV)/.test broker ## real clients of many kinds on brokers of nine releases; writes docs/compatibility.md (ARGS="--only kcat,4.4")
	@PYTHONPATH=tests $(BIN)/python -m matrix $(ARGS)

bench: $(VENV)/.test tshark broker ## every benchmark against its peers, one after another, on an otherwise idle machine
	@for each in $(BENCHES); do echo "==> bench/$$each"; $(BIN)/python bench/$$each || exit; done

lint: $(VENV)/.test ## ruff, spelling, mypy and the layer rules
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@echo "==> codespell"
	@$(BIN)/codespell $(PRODUCT) docs README.md CONTRIBUTING.md CHANGELOG.md
	@echo "==> mypy"
	@# mypy names the root package after its folder; through this link it is 'barnabas' in every clone
	@mkdir -p $(CACHE)/types && rm -f $(CACHE)/types/barnabas && ln -s ../.. $(CACHE)/types/barnabas
	@# the other core compiles the tests meanwhile, which each worker of pytest would do for itself
	@$(BIN)/python -m pytest --collect-only -q >/dev/null & \
	cd $(CACHE)/types && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache \
		$(addprefix barnabas/,$(PRODUCT)); status=$$?; wait; exit $$status
	@echo "==> layers"
	@PYTHONPATH=tests $(BIN)/lint-imports

broker: $(CACHE)/.broker $(CACHE)/broker/classes.jsa ## fetch Apache Kafka for the tests (Java 17, Maven)

sbom: $(VENV)/.test ## write a software bill of materials (CycloneDX JSON) to .cache/sbom.cdx.json
	@PYTHONPATH=tests $(BIN)/python -m supply.sbom > $(CACHE)/sbom.cdx.json
	@echo "==> $(CACHE)/sbom.cdx.json"

# uv asks its own index (UV_DEFAULT_INDEX, if it is not the usual one); no address of it gets into the file
constraints: $(VENV)/.test ## pin the installed packages of the product and its extras, with hashes, in constraints.txt
	@$(BIN)/python -m pip install -q --upgrade --target $(CACHE)/uv uv
	@$(BIN)/python -m pip list --format freeze --exclude barnabas > $(CACHE)/installed.txt
	@$(CACHE)/uv/bin/uv pip compile pyproject.toml $(addprefix --extra ,$(PINNED)) --universal --python-version 3.11 --quiet \
		--generate-hashes --no-header --no-annotate --no-emit-index-url -c $(CACHE)/installed.txt -o constraints.txt

docs: $(VENV)/.docs ## build the documentation site into .cache/site; a broken link is an error
	@$(SITE) build -q
	@echo "==> $(CACHE)/site/index.html"

docs-serve: $(VENV)/.docs ## serve the documentation site at http://127.0.0.1:8000 and reload changed pages
	@$(SITE) serve

reference: $(VENV)/.test ## write docs/reference.md from docstrings, and docs/detectors.md from the detectors
	@for page in reference detectors; do \
		PYTHONPATH=tests $(BIN)/python -m docs.site.$$page > $(CACHE)/$$page.md && mv $(CACHE)/$$page.md docs/$$page.md || exit; \
		echo "==> docs/$$page.md"; done

pictures: $(VENV)/.test ## draw the pictures of the documentation from a recording of the demo
	@PYTHONPATH=tests $(BIN)/python -m docs.site.pictures

clean: ## remove everything installed or built here, except recordings
	rm -rf $(VENV) $(CACHE) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Barnabas needs Python 3.11 or newer, and '$(PYTHON)' is not: install one, then run make PYTHON=python3.11 (or newer)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments: install Debian's python3-venv (apt-get install python3-venv), or name another with PYTHON=" >&2; exit 1; }
	@echo "==> making $(VENV) from $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml $(NATIVE)
	@echo "==> installing barnabas and the demo's clients into $(VENV)"
	@$(BIN)/python -m pip install -q -e '.[demo]'
	@touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml $(NATIVE)
	@echo "==> installing barnabas and MkDocs into $(VENV)"
	@$(BIN)/python -m pip install -q -e '.[docs]'
	@touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml $(NATIVE)
	@echo "==> installing barnabas, the clients, Spark and the test tools into $(VENV) (about 500 MB; a minute or two the first time)"
	@$(BIN)/python -m pip install -q -e '.[demo,spark,test]'
	@touch $@ $(VENV)/.demo

tshark:
	@if command -v tshark >/dev/null; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "The tests open recordings with tshark, which is missing: install Wireshark's tshark and run make again" >&2; exit 1; fi; \
	if [ "$$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then \
		echo "The tests open recordings with tshark, which is missing: run 'apt-get install tshark' as root, then make again" >&2; exit 1; fi; \
	echo "==> installing Debian's tshark"; \
	$(APT_GET) update </dev/null && $(APT_GET) install -y --no-install-recommends tshark </dev/null >/dev/null

# Transparent mode is tried in network namespaces, which only root may make: elsewhere those tests say why they are left out.
nft:
	@if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || { command -v nft && command -v ip; } >/dev/null; then exit 0; fi; \
	echo "==> installing Debian's nftables and iproute2"; \
	$(APT_GET) update </dev/null && $(APT_GET) install -y --no-install-recommends nftables iproute2 </dev/null >/dev/null

# Without a browser the tests of the page in one say why they are left out.
chromium:
	@if command -v chromium >/dev/null || ! command -v apt-get >/dev/null || { [ "$$(id -u)" != 0 ] && ! command -v sudo >/dev/null; }; then exit 0; fi; \
	echo "==> installing Debian's chromium"; \
	$(APT_GET) update </dev/null && $(APT_GET) install -y --no-install-recommends chromium </dev/null >/dev/null

java:
	@command -v java >/dev/null && command -v javac >/dev/null && command -v mvn >/dev/null || { \
		echo "The tests run a real Apache Kafka, and java, javac or mvn is missing: install a JDK 17 or newer and Maven (Debian: apt-get install openjdk-17-jdk-headless maven)" >&2; exit 1; }
	@java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | { read -r major; [ "$${major:-0}" -ge 17 ]; } || { \
		echo "Apache Kafka 4 needs Java 17 or newer, and this is $$(java -version 2>&1 | head -n 1): install one and put it first in PATH" >&2; exit 1; }

$(CACHE)/.broker: tests/real/brokers/pom.xml | java
	@echo "==> fetching Apache Kafka with Maven into $(CACHE) (150 MB)"
	@rm -rf $(CACHE)/broker $(CACHE)/clients $(CACHE)/definitions $(CACHE)/old
	@mvn -q -B -ntp -f tests/real/brokers/pom.xml generate-resources </dev/null
	@touch $@

# a broker starts in half the time with it, and does without it
$(CACHE)/broker/classes.jsa: $(CACHE)/.broker | $(VENV)/.test
	@echo "==> reading a broker's classes once for all"
	@PYTHONPATH=tests $(BIN)/python -m real.brokers.class_archive || echo "no archive of classes: brokers start slower"
