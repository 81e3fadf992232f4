// Package helm tests the chart in deploy/helm/weir: it renders it with many values, decodes every object strictly as Kubernetes would,
// and runs real nodes by what was rendered, with a real etcd. It is a module of its own, so that Helm and the API of Kubernetes are
// no dependencies of Weir.
//
// TestRollingUpdate takes more than 10 s of real time: pods are processes of their own, and are probed and stopped in seconds, as the
// chart says.
package helm
