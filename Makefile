# Each target is one line that you could as well type.
include tools.env

.PHONY: build test race lint generate chaos linear hostile helm overload bench sim audit ci

build:
	go build -o bin/ ./cmd/weir

test:
	go test ./...

# With the Go release of tools.env: the race detector of 1.26 crashes in tests that use testing/synctest.
race:
	GOTOOLCHAIN=$(RACE_TOOLCHAIN) go test -race ./...

lint:
	go run $(GOLANGCI_LINT) run && go run $(BUF) lint

generate:
	go run $(BUF) generate && go run $(BUF) generate --template api/buf.gen.yaml api && go run ./test/openapi && go run ./test/docreference
	go test ./cmd/weir -run TestReferencePages -update
	go test ./node -run TestMetricsPage -update

# Real nodes under faults, for about ten minutes; as root for those of the network.
chaos:
	go test -count=1 -timeout 30m -v ./test/chaos -full

# Histories of real nodes in steady state, while members change, certificates are replaced, an owner is killed and windows end: three minutes.
linear:
	go test -count=1 -timeout 10m -v ./test/linear -full

# A real node abused in all ways that docs/threats.md lists, for ten minutes; on a machine with nothing else to do.
hostile:
	go test -count=1 -timeout 30m -v ./test/hostile -full

# The Helm chart, with a rolling update in the chart's own times: two minutes.
helm:
	cd test/helm && go test -count=1 -v ./... -full

# Three nodes, and one, asked for three times what they can do, in five ways, for two minutes, and one node flooded in one of its domains; on a machine
# with nothing else to do.
overload:
	go test -count=1 -v ./test/e2e -run '^(TestOverloadIsRefused|TestFloodOfOneDomainIsItsOwn|TestWeightsOfDomains)$$' -floods

# make bench measures all of docs/performance.md; PART=wire,few these parts only, SHORT=1 as a
# trial of some minutes, RESUME=1 what was not measured of this commit yet.
bench:
	go run ./test/bench/report $(if $(PART),-part $(PART)) $(if $(SHORT),-short) $(if $(RESUME),-resume)

# make sim SEEDS=1000 plays as many new seeds, and all that have ever failed; make sim SEED=42
# plays one and prints what happened when.
SEEDS = 200
sim:
	go test ./test/sim -run '^TestSeeds$$' -count=1 -timeout=0 $(if $(SEED),-v -seed=$(SEED),-seeds=$(SEEDS))

# What Weir is made of: modules, licences, known vulnerabilities, a bill of materials, the same binary twice.
audit:
	.ci/audit

# The packages for this machine, in bin/packages: make packages VERSION=1.2.3
VERSION = 0.0.0
.PHONY: packages release-check
packages:
	mkdir -p bin/packages && cd test/buildpackages && go run . $(VERSION) ../../bin/packages

# All that a release has, in dist, without publishing it. It takes minutes to compile goreleaser.
release-check:
	go run $(GORELEASER) check && go run $(GORELEASER) release --snapshot --clean

ci:
	.ci/run
