/* SPDX-License-Identifier: MIT */
#ifndef STREAM_CHANCE_H
#define STREAM_CHANCE_H

#include "lib/search.h"
#include "lib/stream_world.h"

/*
 * Streams by chance, for models: on which fabric, of which sizes and kinds.
 */

/* What can be wrong with a fabric: the first kinds of faults of each model. */
enum chance_kind {
	CHANCE_LOSS,
	CHANCE_CORRUPT,
	CHANCE_DUPLICATE,
	CHANCE_REORDER,
	CHANCE_JITTER,
	CHANCE_MIX,
	CHANCE_BANDWIDTH,
	CHANCE_KINDS,
};

#define CHANCE_NAMES \
	"loss", "corrupt", "duplicate", "reorder", "jitter", "mix", "bandwidth"

const char *chance_add_devices(struct world *world, const struct search_plan *plan,
			       uint64_t *random);
/* Of both ends' streams and, by cards, of their QPs. */
void chance_choose_opts(struct world *world, uint64_t *random);

#endif
