// Package operate tests what operators watch a cluster with: the alerts, their pages and the dashboard in deploy, against a
// real Prometheus that scrapes real nodes.
package operate
