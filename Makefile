# Headgate. `make run` starts a node with everything embedded; `make test`
# proves the tree. Everything they need is installed by them.
GO      ?= go
TOOLS   := $(GO) tool -modfile=tools/go.mod
PKGS    := ./...
FUZZTIME ?= 2000x

.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## start a node on this machine, everything embedded
	bin/headgate dev

build: ## build bin/headgate
	$(GO) build -trimpath -o bin/headgate ./cmd/headgate

test: lint build clients unit newest fuzz bench-short ## everything CI runs

lint: ## formatting, vet, staticcheck, architecture
	@out=$$($(TOOLS) gofumpt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$out" ]; then echo "run make fmt:"; echo "$$out"; exit 1; fi
	$(GO) vet $(PKGS)
	$(TOOLS) staticcheck $(PKGS)
	$(GO) test ./internal/archtest

clients: ## registry clients of other makers, for the tests (npm, PyPI); optional outside CI
	scripts/registry-clients || test -z "$$CI"

unit: ## all tests under the race detector, against real servers
	scripts/services run $(GO) test -race -timeout 20m $(PKGS)
	$(GO) test -run 'TestAcceptanceAllocatesNothing|TestProposalsAllocateLittle|TestHostileReportsAreBounded|TestAvroAcceptsWithoutAllocation|TestProposalsAlwaysValidate|TestStrictDocumentsAreValid|TestTokensAreCheap|TestMillionLines|TestSimulation' ./contract ./causal ./gateway ./lease/internal/sim

newest: ## a short run against the newest PostgreSQL (npm)
	HEADGATE_POSTGRES_PACKAGES='./lease/fencepg ./relay/pgrelay ./inbox/inboxpgx ./unit' scripts/postgres-versions 18 -- -race \
	  -run 'TestInterleavings|TestBounds|TestInstall|TestUpgrade|TestStandby|TestDoctorNamesASlot|TestRelayRuns|TestTrap36|TestRemembers|TestSuperseded'

fuzz: ## every fuzz target for a moment, from the checked-in corpus
	scripts/fuzz $(FUZZTIME)

bench: build ## figures as ratios to a baseline of the same run
	bin/headgate bench

bench-short: build ## the same, briefly, to keep the benchmarks alive
	bin/headgate bench --short

bench-peers: ## the contract engine against other JSON Schema libraries
	cd internal/bench/peers && $(GO) test -run '^$$' -bench . -cpu 1

campaign: ## the long forms of the hunts for loss (hours); record in docs/campaigns.md
	HEADGATE_CAMPAIGN=1 scripts/services run $(GO) test -count=1 -timeout 6h $(PKGS)
	scripts/postgres-versions

docs: ## regenerate reference pages
	$(GO) run ./internal/gendocs
	$(GO) test ./cmd/headgate ./node ./admin ./registry/compat -run ReferenceIsFresh -update

fmt: ## format
	$(TOOLS) gofumpt -w $$(git ls-files -co --exclude-standard '*.go')

clean: ## remove what the build made
	rm -rf bin .services

.PHONY: help run build test lint clients unit newest fuzz bench bench-short bench-peers campaign docs fmt clean
