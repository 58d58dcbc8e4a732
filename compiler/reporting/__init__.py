"""`report`: one page about a model, that needs no server and no network; or its twin as text.

    history.py      keeps the text of each level, and what each pass changed
    listings.py     texts as listings: lines, and the model's nodes that each one stands for
    modules.py      the model's nodes, folded by module
    facts.py        everything that the page shows, as JSON
    page.py         the page: a template of Jinja2, styles, scripts and the facts
    terminal.py     the same facts as text
    page/           the template, its styles and its scripts
    vendor/         the library that draws plots, as its authors publish it
"""
