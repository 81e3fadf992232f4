// Package install holds the tests of what a release ships: the unit of systemd, the image, the packages, and the files to
// begin with. They run what is shipped, as its user, on real processes.
package install
