// Package uitest looks at the dashboard of real nodes in a real browser. It is a module of its own, so that users of Weir do not get what
// drives the browser.
//
// The tests run in real time, and take more than 10 s together: the browser is a program of its own.
package uitest
