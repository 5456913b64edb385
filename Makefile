# `make help` lists what there is. CI runs .ci/run, which uses the same targets.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
LINT    := bin/golangci-lint
# PKG limits test, test-quick and bench-go to some packages.
PKG     ?= ./...
# One PostgreSQL server for all the packages' tests.
WITHPG  := go run ./internal/pgtest/cmd/withpg

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: build ## Start everything here: PostgreSQL, provider stand-ins, the service (FLAGS="--listen …")
	@scripts/need.sh postgres
	@exec bin/dispatcher dev $(FLAGS)

.PHONY: build
build: ## Build bin/dispatcher
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/dispatcher ./cmd/dispatcher

# What the examples in the documents use, which run as tests and would else be skipped.
EXAMPLES := curl jq psql psycopg2

# The tests of whole processes come last and alone: what they time out on should be the service, not the machine.
# Vetting the packages once more, and what only debuggers read, would take longer than most of them.
.PHONY: test
test: ## Test everything, all but the process tests with the race detector
	@scripts/need.sh test-postgres cc $(EXAMPLES)
	$(WITHPG) go test -race -vet=off -ldflags=-w -shuffle=on -timeout 15m $(shell go list $(PKG) | grep -v internal/e2e)
	$(if $(filter ./...,$(PKG)),$(WITHPG) go test -shuffle=on -timeout 15m ./internal/e2e)

.PHONY: test-processes
test-processes: ## Test whole processes, with the race detector
	@scripts/need.sh test-postgres cc $(EXAMPLES)
	$(WITHPG) go test -race -timeout 15m ./internal/e2e

.PHONY: test-quick
test-quick: ## Test everything, without the race detector
	@scripts/need.sh test-postgres $(EXAMPLES)
	$(WITHPG) go test $(PKG)

.PHONY: test-docker
test-docker: ## Test what needs PostgreSQL in a container (Testcontainers)
	@scripts/need.sh docker
	PGTEST=docker $(WITHPG) go test -count=1 ./internal/pgtest/... ./internal/store/...

.PHONY: test-compose
test-compose: ## Start docker-compose.yml, send through every channel, take it down
	@scripts/need.sh docker compose curl
	deploy/compose/smoke.sh

.PHONY: bench
bench: build ## Measure the service beside raw River on this machine (FLAGS="--only webhook …"); see docs/performance.md
	@scripts/need.sh postgres
	bin/dispatcher bench $(FLAGS)

.PHONY: bench-go
bench-go: ## Run the packages' own benchmarks
	@scripts/need.sh test-postgres
	$(WITHPG) go test -run '^$$' -bench . -benchmem $(PKG)

# golangci-lint is built from tools/go.mod; the build cache makes repeats quick.
.PHONY: $(LINT)
$(LINT):
	go -C tools build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: lint
lint: $(LINT) ## Lint
	$(LINT) run

.PHONY: fmt
fmt: $(LINT) ## Format
	$(LINT) fmt

.PHONY: generate
generate: ## Write the generated files
	@mkdir -p api
	go run ./cmd/dispatcher openapi >api/openapi.yaml.new
	mv api/openapi.yaml.new api/openapi.yaml

.PHONY: ci
ci: ## Run all that CI runs
	.ci/run

.PHONY: clean
clean: ## Remove what was built; the development data in .dispatcher stays
	rm -rf bin
