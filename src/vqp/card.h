/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CARD_H
#define SNT_VQP_CARD_H

#include <sennit/card.h>

/*
 * The fault of a card, as the end of a sentence that names the field; or NULL. The only
 * check of cards: what passes it can be packed, written as JSON and connected to, and
 * nothing else can. It reads no array past its end, whatever the counts say.
 *
 * The text is snt_err_text()'s: it stays valid until the next failure in this thread,
 * and may be given to snt__fail().
 */
const char *snt__card_fault(const struct snt_card *card);

/*
 * The longest JSON text that is accepted. The longest that is written is less than a
 * third of it; the rest is for indentation and for members of later versions. There is
 * a limit because a parsed text takes many times its length in memory.
 */
#define SNT__CARD_JSON_MAX (64 << 10)

#endif
