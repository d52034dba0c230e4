-- SPDX-License-Identifier: BSD-3-Clause
-- A pandoc filter for HTML: **name**(volume) of a page of ours becomes a link. PAGES in the metadata lists them.
local ours = {}

local function read_pages(meta)
    for page in pandoc.utils.stringify(meta.PAGES):gmatch('%S+') do
        ours[page] = true
    end
end

local function link(inlines)
    for i = 1, #inlines - 1 do
        local name, volume = inlines[i], inlines[i + 1]
        if name.t == 'Strong' and volume.t == 'Str' then
            local page = pandoc.utils.stringify(name) .. '.' .. (volume.text:match('^%((%d)%)') or '')
            if ours[page] then
                inlines[i] = pandoc.Link({name}, page .. '.html')
            end
        end
    end
    return inlines
end

return {{Meta = read_pages}, {Inlines = link}}
