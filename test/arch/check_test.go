package arch

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestCheckFindsViolations checks small modules of one file, or of some, each with at most
// one fault.
func TestCheckFindsViolations(t *testing.T) {
	const ours = `"` + module + `/`
	tests := []struct {
		name  string
		files map[string]string
		want  string // empty if the check must not bite
	}{
		{"allowed", map[string]string{"shard/a.go": doc("shard") + "import _ " + ours + "ring\"\n"}, ""},
		{"upwards", map[string]string{"shard/a.go": doc("shard") + "import _ " + ours + "cluster\"\n"},
			"shard/a.go:3: shard must not import cluster, only ring, algorithms; see the table in test/arch/arch_test.go"},
		{"by another name", map[string]string{"ring/a.go": doc("ring") + "import x " + ours + "algorithms\"\nvar _ x.Limit\n"},
			"ring/a.go:3: ring must not import algorithms, only nothing; see the table in test/arch/arch_test.go"},
		{"under a build constraint", map[string]string{"ring/a.go": "//go:build plan9\n\n" + doc("ring") + "import _ " + ours + "shard\"\n"},
			"ring/a.go:5: ring must not import shard, only nothing; see the table in test/arch/arch_test.go"},
		{"upwards in a test", map[string]string{"shard/a.go": doc("shard"), "shard/a_test.go": "package shard_test\nimport _ " + ours + "cluster\"\n"}, ""},
		{"from test", map[string]string{"test/x/a.go": doc("x") + "import _ " + ours + "node\"\nimport _ \"go.etcd.io/etcd/client/v3\"\n"}, ""},
		{"to test", map[string]string{"node/a.go": doc("node"), "node/a_test.go": "package node\nimport _ " + ours + "test/x\"\n"},
			"node/a_test.go:2: node must not import test/x: no package may import test; see the table in test/arch/arch_test.go"},
		{"unknown package", map[string]string{"util/a.go": doc("util")},
			"util: nothing says what it may import; see the table in test/arch/arch_test.go"},
		{"unknown package with a known one", map[string]string{"shard/x/a.go": doc("x")},
			"shard/x: nothing says what it may import; see the table in test/arch/arch_test.go"},

		{"etcd", map[string]string{"cluster/etcd/a.go": doc("etcd") + "import _ \"go.etcd.io/etcd/client/v3\"\n"}, ""},
		{"etcd elsewhere", map[string]string{"node/a.go": doc("node") + "import _ \"go.etcd.io/etcd/server/v3/embed\"\n"},
			"node/a.go:3: node must not import go.etcd.io/etcd/server/v3/embed: only cluster/etcd may; see the table in test/arch/arch_test.go"},
		{"etcd in a test elsewhere", map[string]string{"node/a.go": doc("node"), "node/a_test.go": "package node\nimport _ \"go.etcd.io/etcd/client/v3\"\n"},
			"node/a_test.go:2: node must not import go.etcd.io/etcd/client/v3: only cluster/etcd may; see the table in test/arch/arch_test.go"},

		{"time without the clock", map[string]string{"rules/a.go": doc("rules") + "import \"time\"\nvar _ = time.Unix(0, 0)\n"}, ""},
		{"clock", map[string]string{"rules/a.go": doc("rules") + "import \"time\"\nvar _ = time.Now()\n"},
			"rules/a.go:4: rules must not use time.Now: instants come in with the call"},
		{"clock as a value", map[string]string{"rules/a.go": doc("rules") + "import clock \"time\"\nvar now = clock.Now\n"},
			"rules/a.go:4: rules must not use time.Now: instants come in with the call"},
		{"clock below", map[string]string{"algorithms/a.go": doc("algorithms") + "import \"time\"\nvar _ = time.Since(time.Time{})\n"},
			"algorithms/a.go:4: algorithms must not use time.Since: instants come in with the call"},
		{"clock in a test", map[string]string{"ring/a.go": doc("ring"), "ring/a_test.go": "package ring\nimport \"time\"\nvar _ = time.Now()\n"}, ""},
		{"clock where it may be", map[string]string{"shard/a.go": doc("shard") + "import \"time\"\nvar _ = time.Now()\n"}, ""},

		{"relay", map[string]string{"cluster/ownership/a.go": doc("ownership") + "import " + ours + "shard\"\nvar _ = shard.Relayed\n", "shard/a.go": doc("shard")},
			"cluster/ownership/a.go:4: cluster/ownership must not name Relayed: it is told which life is reached, and not how"},
		{"own relay", map[string]string{"cluster/view/a.go": doc("view") + "func hasRelay() {}\n"},
			"cluster/view/a.go:3: cluster/view must not name hasRelay: it is told which life is reached, and not how"},
		{"relay where it may be", map[string]string{"shard/a.go": doc("shard") + "const Relayed = 1\n"}, ""},

		{"sleep", map[string]string{"shard/a.go": doc("shard"), "shard/a_test.go": "package shard\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"},
			"shard/a_test.go:3: time.Sleep outside of testing/synctest: wait for the event itself"},
		{"sleep in a bubble", map[string]string{"shard/a.go": doc("shard"), "shard/a_test.go": "package shard\nimport (\n\"time\"\n\"testing/synctest\"\n)\nvar _ = synctest.Test\nfunc f() { time.Sleep(1) }\n"}, ""},
		{"as long as may be", map[string]string{"ring/a.go": doc("ring") + strings.Repeat("\n", maxLines-2)}, ""},
		{"too long", map[string]string{"ring/a.go": doc("ring") + strings.Repeat("\n", maxLines-1)},
			"ring/a.go:2: has 701 lines, more than 700: split it by what is in it"},
		{"too long and generated", map[string]string{"ring/a.go": "// Code generated by hand. DO NOT EDIT.\n" + doc("ring") + strings.Repeat("\n", maxLines)}, ""},
		{"a function as long as may be", map[string]string{"cluster/a.go": doc("cluster") + function(maxFunction)}, ""},
		{"a function too long", map[string]string{"cluster/view/a.go": doc("view") + function(maxFunction+1)},
			"cluster/view/a.go:3: f has 41 lines, more than 40"},
		{"a function too long elsewhere", map[string]string{"node/a.go": doc("node") + function(maxFunction+1)}, ""},
		{"a function too long in a test", map[string]string{"cluster/a.go": doc("cluster"), "cluster/a_test.go": "package cluster\n" + function(maxFunction+1)}, ""},
		{"as many fields as may be", map[string]string{"cluster/replica/a.go": doc("replica") + "type Replica struct {\nlife\na, b, c, d, e, f, g int\n}\n"}, ""},
		{"too many fields", map[string]string{"cluster/replica/a.go": doc("replica") + "type Replica struct {\nlife\na, b, c, d, e, f, g int\nh int\n}\n"},
			"cluster/replica/a.go:3: Replica has 9 fields, more than 8: group those that belong together"},
		{"no struct", map[string]string{"cluster/replica/a.go": doc("replica") + "type Replica int\n"},
			"cluster/replica/a.go:3: Replica is no struct: take it from ofPartitions"},
		{"as many methods as may be", map[string]string{"cluster/a.go": doc("cluster") + methods("*t", maxMethods)}, ""},
		{"too many methods", map[string]string{"cluster/a.go": doc("cluster") + methods("*t", maxMethods), "cluster/b.go": "package cluster\n" + methods("t", 1)},
			"cluster.t has 41 methods, more than 40: it is about several things"},
		{"too many methods elsewhere", map[string]string{"shard/a.go": doc("shard") + methods("t[int]", maxMethods+1)}, ""},
		{"too many methods of a generic type", map[string]string{"cluster/a.go": doc("cluster") + methods("*t[int]", maxMethods+1)},
			"cluster.t has 41 methods, more than 40: it is about several things"},
		{"files from the top down", map[string]string{"cluster/a.go": doc("cluster") + "func f() { g(); (b{}).h() }\n", "cluster/b.go": "package cluster\ntype b struct{}\nfunc g() {}\nfunc (b) h() {}\n"}, ""},
		{"an arrow that runs back up", map[string]string{"cluster/a.go": doc("cluster") + "func f() { g() }\n", "cluster/b.go": "package cluster\nfunc g() { f() }\n"},
			"cluster: 1 of 2 arrows between files run back up, more than 10 in 100: b.go to a.go"},
		{"a method that runs back up", map[string]string{"cluster/view/a.go": doc("view") + "type a struct{}\nfunc (a) f() { (b{}).g() }\n", "cluster/view/b.go": "package view\ntype b struct{}\nfunc (b) g() { a{}.f() }\n"},
			"cluster/view: 1 of 2 arrows between files run back up, more than 10 in 100: b.go to a.go"},
		{"an arrow that runs back up elsewhere", map[string]string{"shard/a.go": doc("shard") + "func f() { g() }\n", "shard/b.go": "package shard\nfunc g() { f() }\n"}, ""},
		{"fields and local names", map[string]string{"cluster/a.go": doc("cluster") + "type a struct{ b int }\nfunc f() { g() }\n", "cluster/b.go": "package cluster\nfunc g() { f := 1; _ = f }\n"}, ""},

		{"sleep of another package", map[string]string{"shard/a.go": doc("shard"), "shard/a_test.go": "package shard\nfunc f() { time.Sleep(1) }\n"}, ""},

		{"algorithm by name", map[string]string{"algorithms/a.go": doc("algorithms") + "const X Algorithm = 1\n", "shard/a.go": doc("shard") + "import " + ours + "algorithms\"\nvar _ = algorithms.X\n"},
			"shard/a.go:4: shard must not name algorithms.X: ask for a trait, see algorithms/algorithm.go and namedAlgorithms in test/arch/arch_test.go"},
		{"algorithm that is chosen", map[string]string{"algorithms/a.go": doc("algorithms") + "const FixedWindow Algorithm = 1\n", "rules/envoy/a.go": doc("envoy") + "import " + ours + "algorithms\"\nvar _ = algorithms.FixedWindow\n"}, ""},
		{"algorithm in a test", map[string]string{"algorithms/a.go": doc("algorithms") + "const X Algorithm = 1\n", "shard/a.go": doc("shard"), "shard/a_test.go": "package shard\nimport " + ours + "algorithms\"\nvar _ = algorithms.X\n"}, ""},

		{"no comment", map[string]string{"shard/a.go": "package shard\n"}, "shard: no file has a package comment"},
		{"comment in a test only", map[string]string{"shard/a.go": "package shard\n", "shard/a_test.go": doc("shard")}, "shard: no file has a package comment"},
		{"two comments", map[string]string{"shard/a.go": doc("shard"), "shard/b.go": doc("shard")}, "shard: more than one file has a package comment: a.go, b.go"},
		{"wrong comment", map[string]string{"shard/a.go": "// Shard is it.\npackage shard\n"}, `shard/a.go:1: the package comment must begin with "Package shard "`},
		{"command", map[string]string{"cmd/weir/a.go": "// Command weir is it.\npackage main\n"}, ""},
		{"only tests", map[string]string{"test/x/a_test.go": doc("x")}, ""},
		{"only generated", map[string]string{"api/weir/v1/a.go": "// Code generated by hand. DO NOT EDIT.\n\npackage weirv1\n"}, ""},

		{"not ours", map[string]string{"testdata/a.go": "package x\n", ".x/a.go": "package x\n", "_x/a.go": "package x\n", "vendor/a.go": "package x\n",
			"other/go.mod": "module other\n", "other/a.go": "package x\n"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			module := fstest.MapFS{"go.mod": {}}
			for name, source := range test.files {
				module[name] = &fstest.MapFile{Data: []byte(source)}
			}
			files, err := load(module)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			if got := check(files); !slices.Equal(got, want) {
				t.Errorf("\n got %q\nwant %q", got, want)
			}
		})
	}
}

// doc returns the first two lines of a file.
func doc(pkg string) string { return "// Package " + pkg + " is a test.\npackage " + pkg + "\n" }

// function returns the source of a function f that has that many lines.
func function(lines int) string { return "func f() {\n" + strings.Repeat("\n", lines-2) + "}\n" }

// methods returns the source of that many methods of a type, each in one line.
func methods(of string, many int) string { return strings.Repeat("func (x "+of+") f() {}\n", many) }
