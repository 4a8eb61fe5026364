# What CI runs, a laptop runs with the same words. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := run

CARGO ?= cargo
# Seeds of `make simulate`.
SEEDS ?= 10000
# How often `make isolation` looks for what is another tenant's.
ATTEMPTS ?= 100000
# How often chaos-basic kills: `make chaos-basic KILLS=30`.
KILLS ?= 10
# How long chaos and fuzz last, and what gives their course: `make chaos MINUTES=10 SEED=7`.
MINUTES ?= 10
SEED ?= 1
# How often each property is looked at by fuzz.
CASES ?= 5000

.PHONY: run test test-clients fuzz-pairs simulate isolation test-cluster chaos-basic chaos chaos-planted fuzz leavers check bench gen audit test-engines fmt help

run: ## build and start one node with every role: no configuration needed
	scripts/setup.sh build
	$(CARGO) run --release -p node --bin waybill -- serve

test: ## every test; installs what the tests need
	scripts/setup.sh build sdk nats postgres
	$(CARGO) build -p node
	scripts/test.sh --workspace

test-clients: ## whole programs that call models: Claude Code, Codex, opencode, aider, LiteLLM; installs them (over a gigabyte)
	scripts/setup.sh build clients
	$(CARGO) build -p node
	$(CARGO) test -p system-tests --test system -- --ignored --test-threads 1 clients::

fuzz-pairs: ## a million random answers over all pairs of dialects, at most ten minutes
	$(CARGO) test --release -p dialects --test pairs --no-run
	WAYBILL_PAIRS=1000000 timeout 600 $(CARGO) test --release -p dialects --test pairs

simulate: ## limits, circuits and idempotency keys under a bad network, SEEDS=n seeds of each
	WAYBILL_SEEDS=$(SEEDS) $(CARGO) test --profile simulate -p schemas --test simulation --test simulation_circuit --test simulation_idempotency

isolation: ## names what one tenant has in every place of every path, ATTEMPTS=n times, with another's credentials
	WAYBILL_ISOLATION=$(ATTEMPTS) $(CARGO) test --profile simulate -p gateway --test it isolation::

test-cluster: ## the system tests on clusters: two gateways, two ledgers, NATS and PostgreSQL for each test
	scripts/setup.sh build sdk nats postgres
	$(CARGO) build -p node
	WAYBILL_TEST_CLUSTER=1 scripts/test.sh -p system-tests --test system

chaos-basic: ## a node and every part of a cluster killed KILLS (10) times, and outages as long as promised
	scripts/setup.sh build nats postgres
	$(CARGO) build -p node
	TEST_THREADS=2 WAYBILL_TEST_KILLS=$(KILLS) WAYBILL_TEST_OUTAGE_SECONDS=30 WAYBILL_TEST_ROUNDS=20 \
	scripts/test.sh -p system-tests --test system cluster:: killed limits::away limits::size

chaos: ## MINUTES (10) of load while every part of a cluster breaks, by SEED (1), and then the books; a report in JSON
	scripts/setup.sh build nats postgres
	$(CARGO) build -p node -p system-tests --bins
	target/debug/chaos-run --minutes $(MINUTES) --seed $(SEED)

chaos-planted: ## the same, short, with each fault that exact limits die of: every one has to be found
	scripts/setup.sh build nats postgres
	$(CARGO) build -p node -p system-tests --bins
	scripts/chaos-planted.sh

fuzz: ## MINUTES (10) of bent requests and bent answers against a node, then every property CASES (5000) times
	scripts/setup.sh build
	$(CARGO) build -p node -p system-tests --bins
	target/debug/fuzz-run --minutes $(MINUTES) --seed $(SEED)
	PROPTEST_CASES=$(CASES) $(CARGO) test --profile simulate -p schemas -p dialects -p bus --lib

leavers: ## five hundred callers who leave at any moment for a minute, before a slow database
	scripts/setup.sh build nats postgres
	$(CARGO) build -p node
	WAYBILL_TEST_LEAVERS=500 WAYBILL_TEST_LEAVING_SECONDS=60 scripts/test.sh -p system-tests --test system bug_case_25

check: ## formatting, lints, documentation, and the project's own rules
	scripts/setup.sh build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --no-deps --workspace
	$(CARGO) run -q -p xtask -- check

bench: ## compare with nginx and a bare proxy, and measure bus and ledger, on this machine
	scripts/setup.sh build nats postgres
	scripts/bench.sh

gen: ## write the files that are generated from code
	$(CARGO) run -q -p xtask -- gen

audit: ## licenses, bans and sources of everything we depend on
	scripts/setup.sh build audit
	$(CARGO) fetch --locked
	$(CARGO) deny --offline check bans licenses sources

test-engines: ## the tests that need a real engine; builds llama-server first (half an hour)
	scripts/setup.sh build sdk
	scripts/llama-server.sh
	$(CARGO) build -p node
	$(CARGO) test -p system-tests --test system -- --ignored --test-threads 1 engine::

fmt: ## format the code
	$(CARGO) fmt --all

help: ## list the targets
	@grep -E '^[a-z-]+: ## ' $(MAKEFILE_LIST) | sed 's/: ## /\t/' | expand -t 16
