// Package compose tests deploy/compose: it reads the file as Docker Compose does, and starts its services from it, each in a network
// of its own. It is a module of its own, so that the reader of Compose files is no dependency of Weir.
//
// It takes more than 10 s of real time: the services are processes of their own, which wait for each other and for Prometheus.
package compose
