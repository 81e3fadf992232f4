// Package monitoring tests what operators watch a cluster with: the alerts, their pages and the dashboard in deploy, against a
// real Prometheus that scrapes real nodes.
//
// It takes more than 10 s of real time: Prometheus is a program of its own, which scrapes by its own clock. What alerts do over hours
// is tested by promtool, in its virtual time.
package monitoring
