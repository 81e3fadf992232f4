// Package uitest looks at the dashboard of real nodes in a real browser. It is a module of its own, so that users of Weir do not get what
// drives the browser.
package uitest
