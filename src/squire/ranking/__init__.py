"""All symbolic evidence for an answer, weighed together by a small ranker that is fitted on hidden facts."""
