/* SPDX-License-Identifier: MIT */
#include "lib/seeds.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int seeds_main(int argc, char **argv, uint64_t seeds_default, seed_fn fn)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "seeds", required_argument, NULL, 'n' },
		{ 0 },
	};
	uint64_t seed = 1, count = seeds_default;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (option == 'n')
			count = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	printf("1..1\n");
	for (uint64_t i = 0; i < count; i++) {
		if (!fn(seed + i))
			continue;
		printf("not ok 1 - seed %" PRIu64 "\n", seed + i);
		printf("# replay: %s --seed %" PRIu64 " --seeds 1\n", argv[0],
		       seed + i);
		return 1;
	}
	printf("ok 1 - %" PRIu64 " seeds from %" PRIu64 "\n", count, seed);
	return 0;
}
