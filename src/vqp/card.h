/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CARD_H
#define SNT_VQP_CARD_H

#include <sennit/card.h>

/*
 * What is wrong with a card, as the end of a sentence that names the field; or
 * NULL. The only judge of cards: what it passes can be packed, written as JSON
 * and connected to, and nothing else can. It reads no array past its end, whatever
 * the counts say.
 *
 * The text is snt_err_text()'s: it stays until the next failure in this thread,
 * and may be given to snt__fail().
 */
const char *snt__card_fault(const struct snt_card *card);

/*
 * The longest JSON text that is read. The longest that is written has less than
 * a third of it; the rest is for indentation and for members of later versions.
 * A limit, since a parsed text takes many times its length in memory.
 */
#define SNT__CARD_JSON_MAX (64 << 10)

#endif
