package email

import (
	"encoding/base64"
	"strings"
	"unicode"
	"unicode/utf8"
)

// headerText makes s fit for a header: valid UTF-8 on one line, with every run of
// white space and control characters as one space. Nothing of s can end the
// header or begin another.
func headerText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}

const (
	// maxWord is the longest word that is written as it is, so that a line can be
	// folded before 78 characters.
	maxWord = 60
	// wordBytes is how much text fits into one encoded word of 75 characters
	// (RFC 2047, 2).
	wordBytes = 45
)

// encodeHeader returns an unstructured header's value. What is not printable
// ASCII, what looks like an encoded word and what is too long for a line is
// written in encoded words.
func encodeHeader(s string) string {
	s = headerText(s)
	plain := !strings.Contains(s, "=?")
	for word := range strings.SplitSeq(s, " ") {
		plain = plain && len(word) <= maxWord
	}
	if plain && ascii(s) {
		return s
	}
	var words []string
	for s != "" {
		n := min(wordBytes, len(s))
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n--
		}
		words = append(words, "=?utf-8?b?"+base64.StdEncoding.EncodeToString([]byte(s[:n]))+"?=")
		s = s[n:]
	}
	return strings.Join(words, " ")
}
