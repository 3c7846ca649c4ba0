/* SPDX-License-Identifier: MIT */
/* A plain connection has no messages: its connection manager's events take their place. */
#include <stdio.h>
#include <string.h>

#include "conn/handshake.h"
#include "util/assert.h"

void snt__handshake_init_plain(struct snt__handshake *hs, bool connects,
			       uint64_t deadline)
{
	memset(hs, 0, sizeof(*hs));
	hs->plain = true;
	hs->connects = connects;
	hs->deadline = deadline;
	hs->state = connects ? SNT__HS_HELLO : SNT__HS_ASK;
	hs->action = connects ? SNT__DO_NOTHING : SNT__DO_ASK;
}

void snt__handshake_go_on(struct snt__handshake *hs, enum snt__handshake_state state)
{
	snt__assert(hs->plain && hs->state < state);
	hs->state = (uint8_t)state;
	hs->action = state == SNT__HS_PLAN ? SNT__DO_MAKE
		     : state == SNT__HS_UP ? SNT__DO_UP
					   : SNT__DO_NOTHING;
	if (state == SNT__HS_UP)
		hs->ping_at = UINT64_MAX;
}

void snt__handshake_disconnected(struct snt__handshake *hs, int error, const char *text,
				 bool by_peer)
{
	if (snt__handshake_over(hs))
		return;
	hs->state = SNT__HS_OVER;
	hs->action = SNT__DO_END;
	hs->error = error;
	hs->by_peer = by_peer;
	snprintf(hs->text, sizeof(hs->text), "%s", text);
}
