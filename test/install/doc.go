// Package install holds the tests of what a release ships: the unit of systemd, the image, and the files to begin with. They
// run what is shipped, as its user, on real processes. TestFirstDay of test/e2e runs the packages.
//
// The tests run in real time, as processes, signals and the sockets of the service manager have no virtual clock.
package install
