package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weirlimit/weir/cmd/weir/internal/sizing"
)

func TestSize(t *testing.T) {
	got := weir(t, nil, "size", "--checks", "1e6/s", "--keys", "1e8", "--batch", "1", "--cores", "4")
	for _, want := range []string{
		"3 of 4 processors", "2.6 of 12 used (22 %); 2.3 if many", "the others use 27 %", "--counter-memory 5888MiB for 62500000 counters and 62500000 copies",
		"6.8GiB, of which", "7.5GiB, for two snapshots of 3.7GiB", "26.2s and 8.8s longer", "etcd",
	} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	got = weir(t, nil, "size", "--checks", "20000", "--keys", "1e6", "--nodes", "2", "--cores", "1", "--json")
	want, err := sizing.For(sizing.Load{Checks: 20000, Keys: 1e6, Nodes: 2, Cores: 1})
	if err != nil {
		t.Fatal(err)
	}
	var plan sizing.Plan
	if err := json.Unmarshal([]byte(got.stdout), &plan); err != nil || plan != want || got.code != 0 {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, nodes := range []string{"1", "3"} {
		if got := weir(t, nil, "size", "--checks", "1e6/s", "--keys", "1e6", "--nodes", nodes); got.code != 1 || got.stdout == "" {
			t.Errorf("%s nodes are too few: %+v", nodes, got)
		}
	}
}

func TestSizeErrors(t *testing.T) {
	for args, want := range map[string]string{
		"--keys 1":                          "--checks: must be given, such as 1e6/s",
		"--checks 1":                        "--keys: must be given, such as 1e8",
		"--checks 1e6/m --keys 1":           `--checks: "1e6/m" is not a number per second`,
		"--checks 0 --keys 1":               "--checks: 0 is not between 1 and 1e+09",
		"--checks 1 --keys many":            `--keys: "many" is not a number`,
		"--checks 1 --keys 1 --batch 90":    "--batch: 90 is not between 0 and 1",
		"--checks 1 --keys 1 --cores 0":     "--cores: 0 is not between 1 and 1024",
		"--checks 1 --keys 1 --nodes -1":    "--nodes: -1 is not between 0 and 127",
		"--checks 1e9/s --keys 1 --cores 1": "--checks: 1e+09 a second are too many for 127 nodes",
		"--checks 1 --keys 1 everything":    "takes no arguments",
	} {
		if got := weir(t, nil, append([]string{"size"}, strings.Fields(args)...)...); got.code != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v, want %s", args, got, want)
		}
	}
}
