/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "output.h"
#include "path.h"
#include "perf_show.h"
#include "report_page.h"
#include "report_svg.h"

static void write_host(const struct report *report, const char *what,
		       const struct perf_hello *host)
{
	fprintf(report->file, "<p class='dim'>%s: <b>", what);
	svg_escape(report->file, host->host);
	fputs("</b>, ", report->file);
	svg_escape(report->file, host->devices);
	fputs("; ", report->file);
	svg_escape(report->file, host->cpu);
	fputs("; ", report->file);
	svg_escape(report->file, host->kernel);
	fputs("; sennit ", report->file);
	svg_escape(report->file, host->version);
	fputs("</p>\n", report->file);
}

static void write_loss_notes(const struct report *report)
{
	char loss[LOSS_NOTE], client[LOSS_TEXT], server[LOSS_TEXT];
	const char *notes[] = {
		perf_loss_note(report->result, report->count, loss),
		perf_buffer_note(report->result, report->count, false, client),
		perf_buffer_note(report->result, report->count, true, server),
	};

	for (size_t i = 0; i < sizeof(notes) / sizeof(*notes); i++)
		if (notes[i])
			fprintf(report->file, "<p class='note'>%s</p>\n", notes[i]);
}

static void write_head(const struct report *report)
{
	const struct perf_plan *plan = &report->client->plan;
	const char *note = perf_path_note(report->result, report->count);
	char date[64] = "";
	time_t now = time(NULL);
	struct tm utc;

	if (gmtime_r(&now, &utc))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", &utc);
	fprintf(report->file,
		"<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
		"<meta name='viewport' content='width=device-width,initial-scale=1'>"
		"<meta name='color-scheme' content='light dark'>"
		"<title>sennit perf, %s</title>\n<style>%s</style></head>\n<body>\n"
		"<h1>sennit perf</h1>\n<p class='dim'>%s, %u run%s of ",
		date, report_style, date, plan->runs, plan->runs > 1 ? "s" : "");
	if (plan->messages)
		fprintf(report->file, "%llu messages for each case</p>\n",
			(unsigned long long)plan->messages);
	else
		fprintf(report->file, "%.3g s for each case</p>\n",
			(double)plan->duration_ns / 1e9);
	write_host(report, "Client", &report->client->here);
	write_host(report, "Server", &report->client->there);
	if (note)
		fprintf(report->file, "<p class='note'>%s</p>\n", note);
	write_loss_notes(report);
}

/*
 * Key figures
 */

static void write_card(const struct report *report, const char *figure,
		       const char *what, const struct perf_result *result)
{
	char heading[PERF_HEADING], size[PERF_SIZE_TEXT];

	fprintf(report->file, "<div><b>%s</b>%s", figure, what);
	if (result)
		fprintf(report->file, "<span class='dim'><br>%s, %s</span>",
			perf_heading(heading, result),
			perf_size_text(size, result->c.size));
	fputs("</div>\n", report->file);
}

/* Of this kind, the result that has most (or least) of something. */
static const struct perf_result *best_result(
	const struct report *report, bool latency,
	double (*value)(const struct perf_result *))
{
	const struct perf_result *best = NULL;

	for (int i = 0; i < report->count; i++) {
		const struct perf_result *result = &report->result[i];

		if (*result->failure || (result->c.kind == PERF_LATENCY) != latency)
			continue;
		if (!best || value(result) > value(best))
			best = result;
	}
	return best;
}

static double median_rate(const struct perf_result *result)
{
	return perf_result_rate(result).median;
}

static double median_message_rate(const struct perf_result *result)
{
	return perf_result_messages(result).median;
}

static double negative_p50(const struct perf_result *result)
{
	return -(double)histogram_at(result->latency, 0.5);
}

static void write_verified(const struct report *report)
{
	uint64_t checked = 0, wrong = 0;
	char bytes[OUTPUT_QUANTITY];

	for (int i = 0; i < report->count; i++) {
		checked += perf_result_checked(&report->result[i]);
		wrong += perf_result_wrong(&report->result[i]);
	}
	if (!checked)
		return;
	write_card(report, output_bytes(bytes, wrong ? wrong : checked),
		   wrong ? "<span class='bad'>wrong</span>"
			 : "verified, all bytes correct",
		   NULL);
}

static void write_cards(const struct report *report)
{
	const struct perf_result *most = best_result(report, false, median_rate),
				 *quick = best_result(report, true, negative_p50),
				 *many = best_result(report, false,
						     median_message_rate);
	char text[OUTPUT_QUANTITY];

	fputs("<div class='cards'>\n", report->file);
	if (most)
		write_card(report, output_rate(text, median_rate(most)),
			   "the most bandwidth", most);
	if (quick) {
		output_duration(text, -negative_p50(quick) / 1e9);
		write_card(report, text, "the lowest median latency", quick);
	}
	if (many) {
		double each = median_message_rate(many);

		snprintf(text, sizeof(text), each < 1e6 ? "%.0f k/s" : "%.2f M/s",
			 each < 1e6 ? each / 1e3 : each / 1e6);
		write_card(report, text, "the most messages", many);
	}
	write_verified(report);
	fputs("</div>\n", report->file);
}

/*
 * Tables
 */

static void write_figures(const struct report *report, const struct perf_result *result)
{
	static const double share[] = { 0.5, 0.9, 0.99, 0.999, 1 };
	char spread[PERF_SPREAD_TEXT];

	fprintf(report->file, "<td>%.3f</td><td>%.0f</td>",
		median_rate(result) * 8 / 1e9, median_message_rate(result));
	for (unsigned i = 0; i < sizeof(share) / sizeof(*share); i++) {
		if (result->latency)
			fprintf(report->file, "<td>%.2f</td>",
				(double)histogram_at(result->latency, share[i]) / 1000);
		else
			fputs("<td></td>", report->file);
	}
	fprintf(report->file, "<td>%s</td>", perf_spread_text(spread, result));
	fprintf(report->file, "<td>%.0f / %.0f %%</td><td>%.3f / %.3f</td><td>",
		100 * perf_result_cpu(result, false),
		100 * perf_result_cpu(result, true), perf_result_wakeups(result, false),
		perf_result_wakeups(result, true));
	if (result->c.verify)
		fputs(perf_result_wrong(result) ? "<span class='bad'>wrong</span>"
						: "yes",
		      report->file);
	fputs("</td>", report->file);
}

static void write_result(const struct report *report, int i)
{
	const struct perf_result *result = &report->result[i];
	char text[PERF_HEADING];

	if (!i || !perf_same_heading(result, result - 1))
		fprintf(report->file,
			"<tr class='series'><th colspan='12'>%s</th></tr>\n",
			perf_heading(text, result));
	fprintf(report->file, "<tr><td>%s</td>", perf_size_text(text, result->c.size));
	if (*result->failure) {
		fputs("<td colspan='11' class='bad'>", report->file);
		svg_escape(report->file, result->failure);
		fputs("</td>", report->file);
	} else {
		write_figures(report, result);
	}
	fputs("</tr>\n", report->file);
}

static void write_results(const struct report *report)
{
	fputs("<section><div class='wide'><table><caption>All results</caption>"
	      "<thead><tr>"
	      "<th>size</th><th>Gb/s</th><th>messages/s</th><th>p50 us</th><th>p90</th>"
	      "<th>p99</th><th>p99.9</th><th>max</th><th>spread</th><th>CPU c / s</th>"
	      "<th>wake-ups c / s</th><th>verified</th></tr></thead><tbody>\n",
	      report->file);
	for (int i = 0; i < report->count; i++)
		write_result(report, i);
	fputs("</tbody></table></div></section>\n", report->file);
}

/* Of the last result that has some. */
static void write_lanes(const struct report *report)
{
	const struct perf_result *result = NULL;
	char title[PERF_TITLE], size[PERF_SIZE_TEXT], bytes[OUTPUT_QUANTITY];

	for (int i = 0; i < report->count; i++)
		if (report->result[i].lane_count > 1 &&
		    report->result[i].c.kind != PERF_LATENCY)
			result = &report->result[i];
	if (!result)
		return;
	fprintf(report->file,
		"<br><section><div class='wide'><table><caption>Lanes of %s, %s</caption><tr>"
		"<th>lane</th><th>device</th><th>path</th><th>fragments</th><th>bytes</th>"
		"<th>doorbells</th><th>completions</th><th>round trip</th>"
		"<th>sent again</th><th>for</th></tr>\n",
		perf_title(title, &result->c), perf_size_text(size, result->c.size));
	for (unsigned i = 0; i < result->lane_count; i++) {
		const struct perf_lane_row *lane = &result->lane[i];

		fprintf(report->file,
			"<tr><td>%u</td><td>%s</td><td>%s</td><td>%llu</td><td>%s</td><td>%llu</td>"
			"<td>%llu</td><td>%.1f us</td><td>%llu</td><td>%s</td></tr>\n",
			i, lane->device, path_name(lane->path),
			(unsigned long long)lane->fragments,
			output_bytes(bytes, lane->bytes),
			(unsigned long long)lane->doorbells,
			(unsigned long long)lane->completions,
			(double)lane->round_trip_ns / 1e3,
			(unsigned long long)lane->resends,
			lane->data ? "data" : "notifications");
	}
	fputs("</table></div></section>\n", report->file);
}

int report_check(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd >= 0)
		unlink(path);
	else if (errno == EEXIST)
		fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -1 : close(fd);
}

int report_write(const char *path, const struct perf_client *client,
		 const struct perf_result *results, int count)
{
	struct report report = { fopen(path, "we"), client, results, count };
	int failed;

	if (!report.file)
		return -errno;
	write_head(&report);
	write_cards(&report);
	fputs("<div class='plots'>\n", report.file);
	report_plots(&report);
	fputs("</div>\n", report.file);
	write_results(&report);
	write_lanes(&report);
	fputs("<p class='dim'>Gb/s are 10^9 bits of payload; figures are medians of the "
	      "runs, percentiles are of all messages. The spread, of bandwidth or of the "
	      "median latency, is half of the distance between the quartiles of the runs; "
	      "in plots it is shown from quartile to quartile. Latency of write-imm, send and "
	      "stream is half of the time there and back, of other operations all of "
	      "it. CPU of client and server: 100 is one processor. Wake-ups of both: for "
	      "each message. Where bytes are verified, filling and comparing are part of "
	      "the time.</p>\n</body></html>\n",
	      report.file);
	failed = ferror(report.file);
	if (fclose(report.file))
		return -errno;
	return failed ? -EIO : 0;
}
