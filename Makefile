# Each target is one line that you could as well type.
GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BUF = github.com/bufbuild/buf/cmd/buf@v1.72.0

.PHONY: build test race lint generate chaos bench sim ci

build:
	go build -o bin/ ./cmd/weir

test:
	go test ./...

race:
	go test -race ./...

lint:
	go run $(GOLANGCI_LINT) run && go run $(BUF) lint

generate:
	go run $(BUF) generate && go run $(BUF) generate --template api/buf.gen.yaml api && go run ./test/openapi

# Real nodes under faults, for about ten minutes; as root for those of the network.
chaos:
	go test -count=1 -timeout 30m -v ./test/chaos -full

# make bench measures all of docs/performance.md; PART=wire,few these parts only, SHORT=1 as a
# trial of some minutes, RESUME=1 what was not measured of this commit yet.
bench:
	go run ./test/bench/report $(if $(PART),-part $(PART)) $(if $(SHORT),-short) $(if $(RESUME),-resume)

# make sim SEEDS=1000 plays as many new seeds, and all that have ever failed; make sim SEED=42
# plays one and prints what happened when.
SEEDS = 200
sim:
	go test ./test/sim -run '^TestSeeds$$' -count=1 -timeout=0 $(if $(SEED),-v -seed=$(SEED),-seeds=$(SEEDS)) -undecided=0

ci:
	.ci/run
