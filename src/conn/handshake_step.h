/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_HANDSHAKE_STEP_H
#define SNT_CONN_HANDSHAKE_STEP_H

#include "conn/handshake.h"

/* Between handshake.c, which receives and sends messages, and handshake_step.c, which
 * interprets them. */

static inline void snt__hs_send(struct snt__handshake *hs, unsigned type)
{
	hs->sending |= (uint16_t)(1u << type);
}

/* A message that has passed the checks of handshake.c. */
void snt__hs_take(struct snt__handshake *hs, const struct snt__header *header,
		  const uint8_t *message, uint64_t now);

/* The peer broke the protocol: ends the connection. */
void snt__hs_blame(struct snt__handshake *hs, unsigned type, const char *fault);

/* Derives session and keys, when both HELLOs are known. */
bool snt__hs_derive(struct snt__handshake *hs);

/* Is the tag that follows the message right? */
bool snt__hs_proves(struct snt__handshake *hs, const uint8_t *message, size_t length);

void snt__hs_take_bye(struct snt__handshake *hs);

#endif
