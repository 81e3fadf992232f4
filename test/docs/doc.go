// Package docs tests the pages of the documentation: that links lead somewhere, that the code, files and tests that pages name
// exist, and that blocks of code compile.
package docs
