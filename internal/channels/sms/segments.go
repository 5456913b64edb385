package sms

import (
	"strings"
	"unicode/utf16"
)

// The encodings of a text message.
const (
	GSM7 = "GSM-7"
	UCS2 = "UCS-2"
)

// What one message holds: alone, and as part of several, which have a header of
// six octets to be joined by (3GPP TS 23.040).
const (
	gsm7Single, gsm7Part = 160, 153 // septets
	ucs2Single, ucs2Part = 70, 67   // UTF-16 code units
)

// The GSM 7 bit default alphabet, without the escape to its extension, and the
// extension, whose characters take two septets (3GPP TS 23.038, 6.2.1).
const (
	gsm7Basic = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?" +
		"¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
	gsm7Extension = "\f^{}\\[~]|€"
)

// Segments counts the messages that a text is sent and billed as, and names the
// encoding it takes: GSM-7 where every character is in that alphabet, else UCS-2
// for the whole. No character is split between two segments. The empty text has
// none.
//
// Toll-free numbers of the United States and Canada hold one septet or code unit
// less in each part, and some carriers differ; see
// https://www.twilio.com/docs/glossary/what-sms-character-limit.
func Segments(text string) (n int, encoding string) {
	if text == "" {
		return 0, GSM7
	}
	for _, r := range text {
		if septets(r) == 0 {
			return pack(text, utf16.RuneLen, ucs2Single, ucs2Part), UCS2
		}
	}
	return pack(text, septets, gsm7Single, gsm7Part), GSM7
}

// septets is the size of r in GSM-7: 1, 2, or 0 where the alphabet lacks it.
func septets(r rune) int {
	switch {
	case strings.ContainsRune(gsm7Basic, r):
		return 1
	case strings.ContainsRune(gsm7Extension, r):
		return 2
	}
	return 0
}

// pack fills parts one after the other.
func pack(text string, size func(rune) int, single, part int) int {
	total, parts, used := 0, 1, 0
	for _, r := range text {
		n := size(r)
		total += n
		if used += n; used > part {
			parts++
			used = n
		}
	}
	if total <= single {
		return 1
	}
	return parts
}
